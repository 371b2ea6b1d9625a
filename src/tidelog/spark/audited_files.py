"""What there is to audit: the replicas of a topic, where their files are, and what must be in them.

A running cluster is asked for its replicas, log dirs and high watermarks. Copies of log dirs
stand for themselves: then each replica's checkpoints say how far it knew, and the one that knew
most counts.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.configs import Resource, describe_configs
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.log import txn_index
from tidelog.log.checkpoints import (
    CHECKSUM,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    parse_meta_properties,
    parse_offsets,
)
from tidelog.log.files import DELETED, LOG, SWAP, TXN_INDEX, base_offset_of, file_name

COMPACT: Final = "compact"
_UNKNOWN: Final = -1
_IN_USE: Final = ("", SWAP)
"""Behind the name of a segment's file. What a cleaner made waits for its name until what it takes
the place of has lost it (`cleaner.swap_in`): between the two a segment has only this one."""
_SUFFIXES: Final = (*_IN_USE, "", DELETED)
"""In this order one is found, whenever it is renamed meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    partition: int
    broker: str
    log_dir: str
    topic: str
    is_in_sync: bool = True

    @property
    def folder(self) -> str:
        return os.path.join(self.log_dir, f"{self.topic}-{self.partition}")

    @property
    def log_start_offset(self) -> int:
        """From where on it should have everything. No segment of tidelog's leaves before a
        checkpoint names a log start behind it, so that one which is missing there is missing.
        Kafka's checkpoint, which has no checksum, does not name what begins with a segment."""
        bases = self.segments()
        data = _read(self.log_dir, LOG_STARTS)
        checkpointed = _offsets(self.log_dir, LOG_STARTS, data)
        named = checkpointed.get(TopicPartition(self.topic, self.partition), 0)
        is_named_always = data is not None and CHECKSUM.encode() in data
        return named if is_named_always or not bases else max(named, bases[0])

    def segments(self) -> list[int]:
        """The offsets at which its segments begin."""
        return _bases(os.listdir(self.folder), LOG, _IN_USE)

    def path(self, base_offset: int) -> str:
        return os.path.join(self.folder, file_name(base_offset, LOG))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A topic's replicas, and up to where each partition must be the same in all."""

    topic: str
    replicas: Sequence[Replica]
    high_watermarks: Mapping[int, int]
    is_compacted: bool

    @property
    def partitions(self) -> list[int]:
        return sorted(self.high_watermarks)

    def replicas_of(self, partition: int) -> list[Replica]:
        return [replica for replica in self.replicas if replica.partition == partition]

    def log_starts(self) -> dict[int, int]:
        """From where on each partition must be the same in all: the highest of its starts."""
        return {
            partition: max(one.log_start_offset for one in self.replicas_of(partition))
            for partition in self.partitions
        }


def of_cluster(client: Client, topic: str) -> Subject:
    """As the cluster says that it is now; the log dirs must be readable here."""
    # Before it is asked who is in sync: all of those have what was committed by then.
    asked = {one.index: LATEST for one in client.cluster([topic]).topic(topic).partitions}
    high_watermarks = list_offsets(client, topic, asked)
    found = client.cluster([topic]).topic(topic).partitions
    partitions = [one for one in found if one.index in high_watermarks]
    dirs = _log_dirs(client, topic, {broker for one in partitions for broker in one.replicas})
    missing = [
        f"{topic}-{one.index} on broker {broker}"
        for one in partitions
        for broker in one.replicas
        if (broker, one.index) not in dirs
    ]
    if missing:
        raise BadValue(f"{', '.join(missing)}: the broker does not say where it is: is it up?")
    replicas = [
        Replica(
            partition=one.index,
            broker=str(broker),
            log_dir=dirs[broker, one.index],
            topic=topic,
            is_in_sync=broker in one.isr,
        )
        for one in partitions
        for broker in one.replicas
    ]
    return Subject(
        topic=topic,
        replicas=_readable(replicas),
        high_watermarks=high_watermarks,
        is_compacted=_is_compacted(client, topic),
    )


def _is_compacted(client: Client, topic: str) -> bool:
    resource = Resource("topic", topic)
    configs = describe_configs(client, [resource])[resource]
    if isinstance(configs, KafkaError):
        raise configs
    policies = {one.value for one in configs if one.name == "cleanup.policy"}
    return any(COMPACT in (policy or "") for policy in policies)


def earliest_offsets(client: Client, subject: Subject) -> dict[int, int]:
    """Where the leaders begin by now."""
    return list_offsets(client, subject.topic, dict.fromkeys(subject.partitions, EARLIEST))


def of_log_dirs(log_dirs: Iterable[str], topic: str, *, is_compacted: bool) -> Subject:
    """As the checkpoints in these log dirs, or copies of them, say."""
    replicas: list[Replica] = []
    watermarks: dict[int, int] = {}
    for log_dir in log_dirs:
        broker = _broker_of(log_dir)
        offsets = _offsets(log_dir, HIGH_WATERMARKS, _read(log_dir, HIGH_WATERMARKS))
        for partition in _partitions_in(log_dir, topic):
            known = offsets.get(TopicPartition(topic, partition), _UNKNOWN)
            watermarks[partition] = max(watermarks.get(partition, _UNKNOWN), known)
            replicas.append(
                Replica(partition=partition, broker=broker, log_dir=log_dir, topic=topic)
            )
    _check_watermarks(replicas, watermarks)
    if not replicas:
        raise BadValue(f"topic {topic}: there is no replica of it in {', '.join(log_dirs)}")
    return Subject(
        topic=topic,
        replicas=sorted(replicas, key=lambda one: (one.partition, one.broker)),
        high_watermarks={one: max(0, known) for one, known in watermarks.items()},
        is_compacted=is_compacted,
    )


def _check_watermarks(replicas: Iterable[Replica], watermarks: Mapping[int, int]) -> None:
    """Where nobody says how far records are committed none would be looked at, and all be well."""
    for one in replicas:
        paths = [one.path(base) for base in one.segments()]
        if watermarks[one.partition] == _UNKNOWN and any(map(_has_content, paths)):
            raise BadValue(
                f"{one.folder}: no {HIGH_WATERMARKS} says how far it is committed, in any of the "
                "log dirs: copy them with that file"
            )


def open_segment(path: str) -> int | None:
    """A file descriptor; None if the file went while nobody looked, as retention makes it."""
    descriptor = _open(path)
    if descriptor is None and not os.path.isdir(os.path.dirname(path)):
        raise BadValue(unreadable(os.path.dirname(path)))
    return descriptor


def _open(path: str) -> int | None:
    for suffix in _SUFFIXES:
        try:
            return os.open(path + suffix, os.O_RDONLY)
        except FileNotFoundError:
            continue
    return None


def _has_content(path: str) -> bool:
    descriptor = _open(path)
    if descriptor is None:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return os.fstat(file.fileno()).st_size > 0


def _content(path: str) -> bytes:
    """Nothing if there is no such file."""
    descriptor = _open(path)
    if descriptor is None:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def aborted_from(path: str, base_offset: int) -> list[txn_index.AbortedTransaction]:
    """What reaches into a segment of transactions that were aborted: its own index has it, or that
    of a later one. A cleaner replaces those after the segment, so they are to be read before it.
    Where the segment was replaced already what was deleted with it says what was aborted in it."""
    folder = os.path.dirname(path)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    is_in_use = base_offset in _bases(names, LOG, _IN_USE)
    found: list[txn_index.AbortedTransaction] = []
    for base in _bases(names, TXN_INDEX, _IN_USE if is_in_use else _SUFFIXES):
        if base >= base_offset:
            index = os.path.join(folder, file_name(base, TXN_INDEX))
            found += txn_index.decode(index, _content(index))
            if not is_in_use:
                found += txn_index.decode(index, _content(index + DELETED))
    return found


def _bases(names: Iterable[str], kind: str, suffixes: Iterable[str]) -> list[int]:
    """The offsets at which segments begin that have a file of a kind, with one of the suffixes."""
    found = {base_offset_of(name, kind + suffix) for name in names for suffix in suffixes}
    return sorted(base for base in found if base is not None)


def unreadable(folder: str) -> str:
    return (
        f"{folder}: cannot be read here: an audit reads the files of the log where Spark's "
        "executors run; name copies that are there with --log-dirs"
    )


def _readable(replicas: list[Replica]) -> list[Replica]:
    for replica in replicas:
        if not os.path.isdir(replica.folder):
            raise BadValue(unreadable(replica.folder))
    return replicas


def _log_dirs(client: Client, topic: str, brokers: Iterable[int]) -> dict[tuple[int, int], str]:
    """By broker and partition."""
    found: dict[tuple[int, int], str] = {}
    for broker in sorted(brokers):
        answer = client.ask(apis.DESCRIBE_LOG_DIRS, {"topics": None}, broker)
        for log_dir in answer.results:
            for one in log_dir.topics:
                if one.name == topic:
                    for partition in one.partitions:
                        if not partition.is_future_key:
                            found[broker, partition.partition_index] = log_dir.log_dir
    return found


def _partitions_in(log_dir: str, topic: str) -> list[int]:
    try:
        names = os.listdir(log_dir)
    except OSError as error:
        raise BadValue(f"log dir {log_dir}: {error.strerror}") from None
    parts = (name.rpartition("-") for name in names)
    return sorted(int(digits) for name, _, digits in parts if name == topic and digits.isdecimal())


def _read(log_dir: str, name: str) -> bytes | None:
    """None if there is no such file."""
    path = os.path.join(log_dir, name)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def _offsets(log_dir: str, name: str, data: bytes | None) -> dict[TopicPartition, int]:
    return {} if data is None else parse_offsets(os.path.join(log_dir, name), data)


def _broker_of(log_dir: str) -> str:
    """Its id; the name of the folder if nothing says it."""
    data = _read(log_dir, META_PROPERTIES)
    if data is None:
        return os.path.basename(os.path.normpath(log_dir))
    fields = parse_meta_properties(os.path.join(log_dir, META_PROPERTIES), data)
    return fields.get("broker.id") or fields.get("node.id") or log_dir
