"""How far moves of replicas are, and how that is shown: Kafka's sentences, a table, or JSON.

What is copied is told by size: that of the replicas that come, beside that of their leader's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import Format, say, say_json, say_table
from tidelog.cli.reassign_plan import Plan, partition_of
from tidelog.client.client import Client
from tidelog.client.cluster import Cluster
from tidelog.client.errors import Unreachable
from tidelog.client.reassignments import Ongoing, list_reassignments, replica_sizes

_PATIENCE_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    partition: TopicPartition
    replicas: tuple[int, ...]
    ongoing: Ongoing | None
    target: tuple[int, ...] | None
    """What was asked for, if that is known here."""
    copied_bytes: int = 0
    whole_bytes: int = 0

    @property
    def is_elsewhere(self) -> bool:
        """Nothing moves, and yet the replicas are not where they were to be."""
        return self.ongoing is None and self.target not in (None, self.replicas)

    @property
    def status(self) -> str:
        if self.ongoing is not None:
            return "moving"
        return "elsewhere" if self.is_elsewhere else "done"

    @property
    def copied(self) -> str:
        if self.ongoing is None or not self.ongoing.adding:
            return ""
        if not self.whole_bytes:
            return "?"
        return f"{100 * self.copied_bytes // self.whole_bytes}%"


def look(
    client: Client, partitions: Iterable[TopicPartition] | None, targets: Plan
) -> list[Progress]:
    """Of these partitions, or of all that are being moved."""
    wanted = None if partitions is None else list(partitions)
    ongoing = list_reassignments(client, wanted)
    shown = list(ongoing) if wanted is None else wanted
    cluster = client.cluster(sorted({one.topic for one in shown}))
    sizes = _sizes(client, cluster, ongoing)
    return [
        Progress(
            partition=one,
            replicas=partition_of(cluster, one).replicas,
            ongoing=ongoing.get(one),
            target=targets.get(one),
            copied_bytes=sizes.get(one, (0, 0))[0],
            whole_bytes=sizes.get(one, (0, 0))[1],
        )
        for one in shown
    ]


def _sizes(
    client: Client, cluster: Cluster, ongoing: Mapping[TopicPartition, Ongoing]
) -> dict[TopicPartition, tuple[int, int]]:
    """Bytes that the new replicas have, and that they will have; none where that is not told."""
    leaders = {one: partition_of(cluster, one).leader for one in ongoing}
    brokers = {broker for move in ongoing.values() for broker in move.adding} | {*leaders.values()}
    told = {one: _told(client, one, ongoing) for one in sorted(brokers & cluster.brokers.keys())}
    silent = {broker for broker, sizes in told.items() if sizes is None}
    sizes = {place: size for some in told.values() if some for place, size in some.items()}
    found = {}
    for one, move in ongoing.items():
        if silent.intersection((leaders[one], *move.adding)):
            continue
        whole = sizes.get((leaders[one], one), 0)
        copied = sum(min(sizes.get((broker, one), 0), whole) for broker in move.adding)
        found[one] = copied, whole * len(move.adding)
    return found


def _told(
    client: Client, broker: int, ongoing: Iterable[TopicPartition]
) -> dict[tuple[int, TopicPartition], int] | None:
    """What a broker has of them; None if it does not answer: moves go on, and are looked at."""
    try:
        with client.within(_PATIENCE_MS):
            return replica_sizes(client, [broker], ongoing)
    except (Unreachable, KafkaError):
        return None


def show_ongoing(found: Sequence[Progress], how: Format) -> None:
    """What is under way."""
    if how is Format.json:
        say_json([_plain(one) for one in found])
    elif how is Format.table:
        _show_table(found)
    elif not found:
        say("No partition reassignments found.")
    else:
        say("Current partition reassignments:")
        for one in found:
            if one.ongoing is not None:
                say(f"{one.partition}: {_sentence(one.ongoing)}")


def show_status(found: Sequence[Progress], how: Format) -> None:
    """What became of moves that were asked for."""
    if how is Format.json:
        say_json([_plain(one) for one in found])
        return
    if how is Format.table:
        _show_table(found)
        return
    say("Status of partition reassignment:")
    for one in found:
        if one.ongoing is not None:
            copied = f" ({one.copied} copied)" if one.copied else ""
            say(f"Reassignment of partition {one.partition} is still in progress{copied}.")
        elif one.is_elsewhere:
            say(
                f"There is no active reassignment of partition {one.partition}, but replica set "
                f"is {_joined(one.replicas)} rather than {_joined(one.target or ())}."
            )
        else:
            say(f"Reassignment of partition {one.partition} is completed.")


def summary(found: Sequence[Progress]) -> str:
    """One line for a person who waits."""
    done = sum(one.ongoing is None for one in found)
    copied, whole = (sum(one.copied_bytes for one in found), sum(one.whole_bytes for one in found))
    share = f", {copied / 1e6:.1f} of {whole / 1e6:.1f} MB copied" if whole else ""
    return f"{done} of {len(found)} partitions are where they shall be{share}"


def _sentence(move: Ongoing) -> str:
    """As Kafka's tool has it."""
    parts = [f"replicas: {_joined(move.replicas)}."]
    if move.adding:
        parts.append(f"adding: {_joined(move.adding)}.")
    if move.removing:
        parts.append(f"removing: {_joined(move.removing)}.")
    return " ".join(parts)


def _show_table(found: Sequence[Progress]) -> None:
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.status,
            _joined(one.replicas),
            _joined(one.ongoing.adding if one.ongoing else ()),
            _joined(one.ongoing.removing if one.ongoing else ()),
            one.copied,
        )
        for one in found
    ]
    say_table(("TOPIC", "PARTITION", "STATUS", "REPLICAS", "ADDING", "REMOVING", "COPIED"), rows)


def _plain(one: Progress) -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "status": one.status,
        "replicas": one.replicas,
        "target": one.target,
        "adding": one.ongoing.adding if one.ongoing else (),
        "removing": one.ongoing.removing if one.ongoing else (),
        "copied_bytes": one.copied_bytes,
        "whole_bytes": one.whole_bytes,
    }


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
