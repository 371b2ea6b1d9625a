"""The files of a partition's replicas, read past the brokers: are they what the log promises?

Segments are read as they lie in the log dirs. `check_replicas` compares all replicas byte by byte
up to an offset and looks at each: offsets follow one another, every CRC is right, each producer's
sequences occur once and in order, and the leader epochs of the batches never fall. `check_epochs`
compares them with the checkpoint that a broker has left when it stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.log.checkpoints import LEADER_EPOCHS, parse_epochs
from tidelog.records.batch import BatchHeader, crc_is_good, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    header: BatchHeader
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


def stored_batches(log_dir: Path, topic: str, partition: int) -> list[StoredBatch]:
    found = []
    for path in sorted((log_dir / f"{topic}-{partition}").glob("*.log")):
        data = path.read_bytes()
        for position, header in walk(data):
            found.append(StoredBatch(header=header, data=data[position : position + header.size]))
    return found


def end_offset(log_dir: Path, topic: str, partition: int) -> int:
    found = stored_batches(log_dir, topic, partition)
    return found[-1].next_offset if found else 0


def check_replicas(log_dirs: Mapping[int, Path], topic: str, partition: int, end: int) -> list[str]:
    """What is wrong with the replicas on these brokers, below `end`; empty if nothing is."""
    wrong: list[str] = []
    contents: dict[int, bytes] = {}
    for broker_id, log_dir in sorted(log_dirs.items()):
        found = stored_batches(log_dir, topic, partition)
        below = [batch for batch in found if batch.next_offset <= end]
        where = f"{topic}-{partition} on broker {broker_id}"
        reached = below[-1].next_offset if below else 0
        if reached < end:
            wrong.append(f"{where}: ends at {reached}, below {end}")
        wrong += [f"{where}: {what}" for what in _check_batches(below)]
        contents[broker_id] = b"".join(batch.data for batch in below)
    first, *others = contents
    for other in others:
        if contents[other] != contents[first]:
            at = _first_difference(contents[first], contents[other])
            wrong.append(
                f"{topic}-{partition}: brokers {first} and {other} differ from byte {at} on"
            )
    return wrong


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _check_batches(found: list[StoredBatch]) -> list[str]:
    wrong: list[str] = []
    expected: dict[tuple[int, int], int] = {}
    offset, epoch = found[0].header.base_offset if found else 0, -1
    for batch in found:
        header = batch.header
        if not crc_is_good(batch.data, 0, header.size, header.crc):
            wrong.append(f"the CRC of the batch at {header.base_offset} is wrong")
        if header.base_offset != offset:
            wrong.append(f"a batch starts at {header.base_offset} instead of {offset}")
        if header.partition_leader_epoch < epoch:
            wrong.append(
                f"epoch {header.partition_leader_epoch} at {header.base_offset} is after {epoch}"
            )
        offset, epoch = header.next_offset, header.partition_leader_epoch
        if header.producer_id >= 0:
            producer = (header.producer_id, header.producer_epoch)
            sequence = expected.get(producer, header.base_sequence)
            if header.base_sequence != sequence:
                wrong.append(
                    f"producer {producer} at {header.base_offset}: sequence"
                    f" {header.base_sequence} instead of {sequence}"
                )
            expected[producer] = header.base_sequence + header.last_offset_delta + 1
    return wrong


def check_epochs(log_dir: Path, topic: str, partition: int) -> list[str]:
    """Where the batches of a broker that was stopped disagree with its leader epoch checkpoint."""
    found = stored_batches(log_dir, topic, partition)
    path = log_dir / f"{topic}-{partition}" / LEADER_EPOCHS
    entries = parse_epochs(str(path), path.read_bytes()) if path.exists() else []
    wrong = []
    for batch in found:
        offset, epoch = batch.header.base_offset, batch.header.partition_leader_epoch
        named = [number for number, start in entries if start <= offset][-1:]
        if named != [epoch]:
            wrong.append(f"the batch at {offset} has epoch {epoch}, the checkpoint says {named}")
    return wrong
