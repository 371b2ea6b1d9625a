"""What a broker tells monitoring systems, in the form that Prometheus reads.

The page is made from plain counters and from the state of the broker when somebody asks for
it; nothing is kept up to date for it in between. It is served by the broker's own loop on
`metrics.port`, to whatever looks like an HTTP GET: in slices, because a broker may have thousands
of partitions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tidelog.base.ports import Clock, Connection, Loop, Timer
from tidelog.broker import Broker
from tidelog.cluster.effective import effective_topic_settings
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.handlers.table import NAMES
from tidelog.partition import Partition
from tidelog.slices import Sliced

REQUEST_BYTES_MAX: Final = 16 * 1024
CONNECTIONS_MAX: Final = 20
IDLE_MS_MAX: Final = 300_000
ROWS_BETWEEN: Final = 50
"""Lines of the page that are made, or topics that are looked at for them, before others may come
in between."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


def lines(broker: Broker) -> Iterator[str]:
    for family in _families(broker):
        yield from family


def _families(broker: Broker) -> Iterator[Iterator[str]]:
    yield from _replication(broker)
    yield from _traffic(broker)
    yield from _storage(broker)


def _replication(broker: Broker) -> Iterator[Iterator[str]]:
    image = broker.metadata.image
    partitions = [
        (topic.name, info) for topic in image.topics.values() for info in topic.partitions
    ]
    minimum: dict[str, int] = dict.fromkeys(image.topics, 1)
    yield _learning(broker, minimum)

    def count(is_counted: Callable[[str, PartitionInfo], bool]) -> list[Sample]:
        return [({}, sum(is_counted(name, info) for name, info in partitions))]

    yield _gauge(
        "under_replicated_partitions",
        "Partitions with fewer replicas in sync than they have.",
        count(lambda _, info: len(info.isr) < len(info.replicas)),
    )
    yield _gauge(
        "offline_partitions",
        "Partitions without a leader.",
        count(lambda _, info: info.leader == NO_LEADER),
    )
    yield _gauge(
        "under_min_isr_partitions",
        "Partitions with fewer replicas in sync than min.insync.replicas, or all they have.",
        count(lambda name, info: len(info.isr) < min(minimum[name], len(info.replicas))),
    )
    led = sum(partition.is_led for partition in broker.partitions)
    yield _gauge("partitions_led", "Partitions this broker leads.", [({}, led)])
    yield _gauge("replicas", "Replicas this broker holds.", [({}, len(broker.partitions))])
    for name, text, value in (
        ("isr_shrinks_total", "In-sync sets this broker made smaller.", broker.in_sync.shrinks),
        ("isr_expands_total", "In-sync sets this broker made larger.", broker.in_sync.expands),
    ):
        yield _family("counter", name, text, [({}, value)])
    is_controller = image.controller_id == broker.broker_id
    yield _gauge(
        "active_controller", "1 if this broker is the controller.", [({}, int(is_controller))]
    )


def _learning(broker: Broker, minimum: dict[str, int]) -> Iterator[str]:
    """Finds out `min.insync.replicas` of each topic: with all of its settings, which takes as long
    as many lines do. Others may come in between, as they may between lines."""
    image = broker.metadata.image
    for name in minimum:
        settings = effective_topic_settings(image, broker.settings, name)
        minimum[name] = settings.whole("min.insync.replicas")
        yield ""


def _traffic(broker: Broker) -> Iterator[Iterator[str]]:
    counters = broker.counters
    yield _histogram(broker)
    yield _by_topic(broker, "bytes_in_total", "Bytes appended.", lambda p: p.bytes_in)
    yield _by_topic(broker, "bytes_out_total", "Bytes sent to consumers.", lambda p: p.bytes_out)
    yield _gauge("connections", "Connections that are open.", [({}, len(broker.doors.connections))])
    for name, text, value in (
        ("connections_accepted_total", "Connections taken.", counters.connections_accepted),
        ("connections_refused_total", "Connections refused.", counters.connections_refused),
        (
            "requests_refused_total",
            "Requests that were not read or are not served.",
            counters.requests_refused,
        ),
    ):
        yield _family("counter", name, text, [({}, value)])
    garbage: list[Sample] = [({}, counters.garbage_us / 1e6)]
    yield _family("counter", "garbage_seconds_total", "Spent on collecting garbage.", garbage)
    yield _gauge("fetch_sessions", "Fetch sessions that are open.", [({}, len(broker.sessions))])


def _by_topic(
    broker: Broker, name: str, text: str, of: Callable[[Partition], int]
) -> Iterator[str]:
    sizes: Counter[str] = Counter()
    for partition in broker.partitions:
        sizes[partition.topic] += of(partition)
    samples = [({"topic": topic}, float(size)) for topic, size in sorted(sizes.items())]
    return _family("counter", name, text, samples)


def _storage(broker: Broker) -> Iterator[Iterator[str]]:
    dirs = broker.logs.dirs
    offline = [({"dir": log_dir.path}, int(log_dir.failure is not None)) for log_dir in dirs]
    yield _gauge("log_dir_offline", "1 if a log dir has failed.", offline)
    rows = sorted(broker.partitions, key=lambda partition: partition.name)
    gauges: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
        ("log_end_offset", "The offset the next record gets.", lambda p: p.log.log_end_offset),
        ("log_start_offset", "The first offset.", lambda p: p.log.log_start_offset),
        ("high_watermark", "What lies below it is committed.", lambda p: p.high_watermark),
        ("log_size_bytes", "Bytes of the log's segments.", lambda p: p.log.segments.size),
    )
    for name, text, of in gauges:
        yield _gauge(name, text, _of_partitions(rows, of))


def _of_partitions(rows: list[Partition], of: Callable[[Partition], int]) -> Iterator[Sample]:
    for partition in rows:
        yield {"topic": partition.topic, "partition": str(partition.index)}, of(partition)


def _histogram(broker: Broker) -> Iterator[str]:
    name = "tidelog_request_seconds"
    yield f"# HELP {name} From a request's last byte to its answer.\n# TYPE {name} histogram\n"
    for key, times in sorted(broker.counters.times.items()):
        label = f'api="{NAMES[key]}"'
        for upper_us, count in times.cumulative():
            yield f'{name}_bucket{{{label},le="{upper_us / 1e6:g}"}} {count}\n'
        yield f'{name}_bucket{{{label},le="+Inf"}} {times.count}\n'
        yield f"{name}_sum{{{label}}} {times.total_us / 1e6:g}\n"
        yield f"{name}_count{{{label}}} {times.count}\n"


def _gauge(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    return _family("gauge", name, text, samples)


def _family(kind: str, name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP tidelog_{name} {text}\n# TYPE tidelog_{name} {kind}\n"
    for labels, value in samples:
        pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        yield f"tidelog_{name}{f'{{{pairs}}}' if pairs else ''} {value:.17g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsPages:
    """Those who ask for the page: a few at a time, and none that has nothing to ask."""

    def __init__(self, broker: Broker, loop: Loop, clock: Clock) -> None:
        self.broker = broker
        self._loop = loop
        self._clock = clock
        self._open = 0

    def accept(self, link: Connection) -> "MetricsPage | None":
        if self._open >= CONNECTIONS_MAX:
            return None
        self._open += 1
        page = MetricsPage(self, link)
        self._look_again(page)
        return page

    def left(self) -> None:
        self._open -= 1

    def _look_again(self, page: "MetricsPage") -> None:
        at_ms = self._clock.monotonic_ms() + IDLE_MS_MAX
        page.idling = self._loop.call_at(at_ms, lambda: self._look(page))

    def _look(self, page: "MetricsPage") -> None:
        if page.was_asked():
            self._look_again(page)


class MetricsPage:
    """A connection that asks for the page, as often as it likes."""

    def __init__(self, owner: MetricsPages, link: Connection) -> None:
        self._owner = owner
        self._link = link
        self._buffer = bytearray(REQUEST_BYTES_MAX)
        self._filled = 0
        self._is_asked = False
        self.is_open = True
        self.idling: Timer | None = None

    def was_asked(self) -> bool:
        """Since the last time; else the connection ends here."""
        was, self._is_asked = self._is_asked, False
        if not was:
            self._link.abort()
        return was

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> None:
        self._filled += size
        head = bytes(self._buffer[: self._filled])
        if b"\r\n\r\n" in head:
            self._is_asked = True
            self._answer(head.split(b" ", 2))
        elif self._filled == REQUEST_BYTES_MAX:
            self._send("431 Request Header Fields Too Large", "too long a request\n")

    def closed(self, _why: str) -> None:
        """What would look at it later must not keep it until then: who comes and goes at once may
        do so thousands of times."""
        self.is_open = False
        if self.idling is not None:
            self.idling.cancel()
            self.idling = None
        self._owner.left()

    def _answer(self, words: list[bytes]) -> None:
        if len(words) < 3 or words[0] not in (b"GET", b"HEAD"):
            self._send("405 Method Not Allowed", "only GET is answered here\n")
        elif words[1].split(b"?")[0] not in (b"/", b"/metrics"):
            self._send("404 Not Found", "the page is /metrics\n")
        else:
            self._link.pause()
            making = self._making(with_body=words[0] == b"GET")
            self._owner.broker.slices.run(making, self._link.abort)

    def _making(self, *, with_body: bool) -> Sliced:
        """Nothing more is read meanwhile, and nothing more is made for somebody who has left."""
        made = []
        for number, line in enumerate(lines(self._owner.broker), start=1):
            made.append(line)
            if number % ROWS_BETWEEN == 0:
                yield None
                if not self.is_open:
                    return
        self._send("200 OK", "".join(made), with_body=with_body)
        self._link.resume()

    def _send(self, status: str, text: str, *, with_body: bool = True) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._filled = 0
        self._link.send(head.encode() + (body if with_body else b""))
