"""The steps of the demo in which a node starts, makes topics, and stops."""

from dataclasses import dataclass
from time import perf_counter
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.cli.demo_clients import QUIET, SECONDS_MAX
from tidelog.cli.demo_node import Node
from tidelog.cli.demo_screen import Screen
from tidelog.log.checkpoints import CLEAN_SHUTDOWN

SHARED: Final = "orders"
READINGS: Final = "readings"
PAYMENTS: Final = "payments"
PAYMENT_PARTITIONS: Final = 3
TOPICS: Final = (
    NewTopic(SHARED, 1, 1, config={"retention.ms": "-1"}),
    NewTopic(READINGS, 1, 1, config={"segment.bytes": "1048576"}),
    NewTopic(PAYMENTS, PAYMENT_PARTITIONS, 1, config={"max.message.bytes": "10000000"}),
)


@dataclass(slots=True, kw_only=True)
class Play:
    """What the steps with a node share."""

    screen: Screen
    node: Node
    memory_mb: float = 0.0
    """Of the node when it had just started."""

    @property
    def address(self) -> str:
        return self.node.address


def start_the_node(play: Play) -> None:
    screen, node = play.screen, play.node
    screen.step("Start: a broker is one process, and needs no other")
    seconds = node.start()
    play.memory_mb = node.memory_mb()
    screen.table(
        ["listens on", "started in", "memory", "processes", "keeps its data in"],
        [
            (
                node.address,
                f"{seconds * 1000:.0f} ms",
                f"{play.memory_mb:.0f} MB",
                node.processes(),
                f"{node.log_dir.parent.name}/{node.log_dir.name}",
            )
        ],
    )


def create_topics(play: Play) -> None:
    screen = play.screen
    screen.step("Topics: made and described by Kafka's own admin calls")
    admin = AdminClient({"bootstrap.servers": play.address} | QUIET)
    started = perf_counter()
    for made in admin.create_topics(list(TOPICS), request_timeout=SECONDS_MAX).values():
        made.result()
    seconds = perf_counter() - started
    found = admin.list_topics(timeout=10).topics
    screen.table(
        ["topic", "partitions", "led by", "its own settings"],
        [
            (
                topic.topic,
                len(found[topic.topic].partitions),
                f"broker {found[topic.topic].partitions[0].leader}",
                ", ".join(f"{name}={value}" for name, value in topic.config.items()),
            )
            for topic in TOPICS
        ],
    )
    screen.notice(
        f"confluent-kafka asked, and had its answer after {seconds * 1000:.0f} ms, when all of it "
        f"was durable."
    )


def stop_the_node(play: Play) -> None:
    screen, node = play.screen, play.node
    screen.step("Stop: what all this has cost the node")
    costs = (f"{node.memory_mb():.0f} MB", f"{node.memory_mb_max():.0f} MB", node.processes())
    started = perf_counter()
    node.stop()
    seconds = perf_counter() - started
    assert (node.log_dir / CLEAN_SHUTDOWN).exists(), "a clean stop leaves its marker"
    screen.table(
        ["memory after its start", "at the end", "at most", "processes", "stopped in"],
        [(f"{play.memory_mb:.0f} MB", *costs, f"{seconds * 1000:.0f} ms")],
    )
    screen.notice(
        "SIGTERM: what was accepted is answered, everything is made durable, and the next start "
        "need not look for damage."
    )
