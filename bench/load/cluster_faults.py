"""Clusters that lose a broker and get it back: how long nobody answers, and how fast it catches up.

A prober writes as a client does: it asks any broker who leads, writes with acks=all, and tries
again at once. The clock runs from just before the kill to the answer without an error.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load.cluster_scenarios import SECONDS_MAX, Effort, Sides
from bench.load.cluster_side import ClusterSide
from bench.load.contest import Row, row, tell
from bench.load.frames import ACKS_ALL, FETCH, PRODUCE, Topic, batch, fetch, produce
from bench.load.generator import Stream
from bench.load.metadata import Metadata
from bench.load.target import Target

PROBE_TIMEOUT_MS = 200
"""One partition that waits for a dead follower must not keep the rest of its request waiting."""
RECOVERY_SECONDS_MAX = 90
PAUSE_SECONDS = 0.005
SESSION_SECONDS, TICK_SECONDS, GRACE_SECONDS = 18.0, 0.25, 1.0
"""What ZooKeeper and a broker agree on with default settings."""
FETCH_BYTES, CATCH_UP_BATCH = 1 << 20, 65_536
CATCH_UP_MULTIPLE = 3
"""Of the megabytes of other scenarios: a follower takes a while to reach its speed."""
FETCH_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    first_seconds: float
    """To the first record for a partition that the dead one led."""
    all_seconds: float


class Prober:
    """Writes a record to partitions of a topic, through whatever happens to the brokers."""

    def __init__(self, side: ClusterSide, topic: Topic) -> None:
        self._side, self._topic = side, topic
        self._targets: dict[int, Target] = {}
        self._record = batch(100)

    def acknowledged(self, wanted: Iterable[int]) -> set[int]:
        """Those of the partitions that took a record in one try."""
        found, remaining = self._metadata(), set(wanted)
        sent: list[int] = []
        for leader in self._side.cluster.running if found else ():
            numbers = [n for n in found.led_by(leader) if n in remaining] if found else []
            if numbers and self._send(leader, numbers):
                sent.append(leader)
        return {number for leader in sent for number in self._answers(leader)}

    def close(self) -> None:
        for target in self._targets.values():
            target.close()

    def _metadata(self) -> Metadata | None:
        for number in self._side.cluster.running:
            try:
                return self._target(number).metadata(self._topic.name)
            except (OSError, RuntimeError) as error:
                self._drop(number, error)
        return None

    def _send(self, leader: int, numbers: Sequence[int]) -> bool:
        try:
            target = self._target(leader)
            batches = [(number, self._record) for number in numbers]
            version = target.versions[PRODUCE]
            target.send(produce(self._topic, batches, version, ACKS_ALL, PROBE_TIMEOUT_MS))
        except (OSError, RuntimeError) as error:
            self._drop(leader, error)
            return False
        return True

    def _answers(self, leader: int) -> list[int]:
        try:
            answer = self._target(leader).produce_answer()
        except (OSError, RuntimeError) as error:
            self._drop(leader, error)
            return []
        return [number for number, error in answer.items() if not error]

    def _target(self, number: int) -> Target:
        if number not in self._targets:
            address = self._side.cluster.nodes[number].address
            self._targets[number] = Target(*address, timeout_seconds=10)
        return self._targets[number]

    def _drop(self, number: int, error: Exception) -> None:
        """The next try connects anew; that a broker which runs has closed is worth a line."""
        tell(f"{self._side.name}: connection to broker {number}: {error}")
        if number in self._targets:
            self._targets.pop(number).close()


def recovery(
    side: ClusterSide, topic: Topic, partitions: int, victim: int, with_guard: bool = False
) -> Recovery:
    """Kills a leader, waits until all partitions take records again, and brings it back."""
    prober = Prober(side, topic)
    everything = set(range(partitions))
    side.wait(lambda: prober.acknowledged(everything) == everything, "cannot be written")
    lost = set(side.metadata(topic).led_by(victim))
    began = time.monotonic()
    side.cluster.kill_node(victim, with_guard=with_guard)
    try:
        found = _served_again(prober, everything, lost, began)
    finally:
        prober.close()
        side.cluster.start_node(victim)
        side.cluster.await_members()
    side.await_in_sync(topic, partitions)
    return found


def _served_again(prober: Prober, wanted: set[int], lost: set[int], began: float) -> Recovery:
    first, pending = 0.0, set(wanted)
    while pending:
        taken = prober.acknowledged(pending)
        now = time.monotonic() - began
        pending -= taken
        first = first or (now if taken & lost else 0.0)
        if now > RECOVERY_SECONDS_MAX:
            raise RuntimeError(f"{len(pending)} partitions take no records after {now:.0f} s")
        if not taken:
            time.sleep(PAUSE_SECONDS)
    return Recovery(first_seconds=first, all_seconds=time.monotonic() - began)


def failover(sides: Sides, effort: Effort) -> list[Row]:
    """Each broker leads one of three partitions; ours says who its controller is."""
    tell("kill -9 of a leader")
    found: list[Row] = []
    for side in sides:
        controller = side.metadata().controller
        victims = [number for number in side.cluster.nodes if number != controller][: effort.kills]
        plain = [killed(side, victim) for victim in victims]
        is_ours = side.name == "tidelog"
        found.append(_killed_row(side, "a leader", plain, "<= 1" if is_ours else ""))
        if is_ours:
            both = killed(side, side.metadata().controller)
            found.append(_killed_row(side, "the leader and controller", [both], "<= 1"))
        elif effort.kills > 1:
            found.append(_killed_row(side, "another leader", [killed(side, controller)], ""))
    return found


def machine_death(sides: Sides, _: Effort) -> list[Row]:
    """With its guard gone too, nothing but the session's timeout tells of a broker's death."""
    tell("kill -9 of a leader and its guard")
    limit = SESSION_SECONDS + 2 * TICK_SECONDS + GRACE_SECONDS
    found = []
    for side in sides:
        if side.cluster.coordination_pids:
            victim = next(n for n in side.cluster.nodes if n != side.metadata().controller)
            took = killed(side, victim, with_guard=True)
            found.append(_killed_row(side, "a leader and its guard", [took], f"<= {limit}"))
    return found


def killed(side: ClusterSide, victim: int, with_guard: bool = False) -> float:
    """Seconds to the next record for a partition that the victim led."""
    partitions = len(side.cluster.nodes)
    topic = side.new_topic(partitions)
    return recovery(side, topic, partitions, victim, with_guard).first_seconds


def _killed_row(side: ClusterSide, who: str, took: list[float], target: str) -> Row:
    told = "" if len(took) == 1 else f" (slowest of {len(took)}, median {median(took):.3g})"
    name = f"{side.name}: kill -9 of {who} to the next acknowledged record"
    return row(name, max(took), f"s{told}", target)


def catch_up(sides: Sides, effort: Effort) -> list[Row]:
    """A follower that was away, against one consumer with one connection that throws all away."""
    tell("a follower that returns")
    found: list[Row] = []
    for side in sides:
        taken = [caught_up(side, effort.megabytes * CATCH_UP_MULTIPLE) for _ in range(effort.kills)]
        speeds = f"{median(s for s, _ in taken):.0f} of {median(f for _, f in taken):.0f}"
        found.append(
            row(
                f"{side.name}: a returning follower, of a consumer's speed",
                median(speed / fetched for speed, fetched in taken),
                f"x ({speeds} MB/s)",
                ">= 0.8" if side.name == "tidelog" else "",
            )
        )
    return found


def caught_up(side: ClusterSide, megabytes: float) -> tuple[float, float]:
    """Its speed, and a consumer's, taken before and after, in MB/s."""
    with side.topic(1) as topic:
        found = side.metadata(topic)
        leader = found.places[0].leader
        away = next(n for n in side.cluster.nodes if n not in (leader, found.controller))
        side.cluster.stop_node(away)
        side.wait(
            lambda: away not in side.metadata(topic).places[0].in_sync, "the ISR does not shrink"
        )
        frames = side.frames(topic, batch(1000, CATCH_UP_BATCH))
        side.load(
            frames, Stream(name="fill", frames=[], in_flight=5, megabytes=megabytes), SECONDS_MAX
        )
        before = fetch_speed(side, topic, leader)
        use_memory(side.cluster.folder, megabytes)
        speed = follow_speed(side, topic, away, leader)
        side.cluster.await_members()
        side.await_in_sync(topic, 1)
        return speed, median([before, fetch_speed(side, topic, leader)])


def use_memory(folder: Path, megabytes: float) -> None:
    """What a virtual machine never used is slow to get, and would be most of what is measured."""
    path, part = folder / "used", bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(round(megabytes)):
            file.write(part)
    path.unlink()


def fetch_speed(side: ClusterSide, topic: Topic, leader: int) -> float:
    with side.asking(leader) as target:
        frame = fetch(topic, 1, FETCH_BYTES, target.versions[FETCH])
    address = side.cluster.nodes[leader].address
    stream = Stream(name="consume", frames=[frame], follow=True, address=address)
    return side.run([stream], FETCH_SECONDS)[0].speed


def follow_speed(side: ClusterSide, topic: Topic, away: int, leader: int) -> float:
    """From when its log first grows until it is as long as the leader's."""
    begins_at, whole = size_of(side, topic, away), size_of(side, topic, leader)
    side.cluster.start_node(away)
    side.wait(lambda: size_of(side, topic, away) > begins_at, "it fetches nothing", PAUSE_SECONDS)
    began, from_bytes = time.monotonic(), size_of(side, topic, away)
    side.wait(lambda: size_of(side, topic, away) >= whole, "it is still behind", PAUSE_SECONDS)
    return (whole - from_bytes) / 1e6 / (time.monotonic() - began)


def size_of(side: ClusterSide, topic: Topic, node: int) -> int:
    folder = side.cluster.nodes[node].logs / f"{topic.name}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))
