"""The files of a compacted partition's replicas, read past the brokers: do they agree as R6 says?

Replicas are compacted each at its own time, so their bytes differ. What must not differ is the
record at any offset that two of them hold, and the last record of each key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.replica_files import stored_batches
from tidelog.records.reference import Record, read_records

Content = tuple[bytes | None, bytes | None]
"""Key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """One replica."""

    end: int
    records: list[Record]

    @property
    def by_offset(self) -> dict[int, Content]:
        return {record.offset: (record.key, record.value) for record in self.records}

    @property
    def last(self) -> dict[bytes | None, bytes | None]:
        return {record.key: record.value for record in self.records}


def read_compacted(log_dir: Path, topic: str, partition: int) -> Compacted:
    batches = stored_batches(log_dir, topic, partition)
    records = [one for batch in batches for one in read_records(batch.data, verify_crc=True)]
    return Compacted(end=batches[-1].next_offset if batches else 0, records=records)


def check_compacted(
    replicas: Mapping[int, Compacted], acknowledged: Mapping[int, Content], end: int
) -> list[str]:
    """What is wrong with the replicas on these brokers; empty if nothing is. All that was sent
    was acknowledged, under these offsets."""
    wrong: list[str] = []
    last = {acknowledged[offset][0]: acknowledged[offset][1] for offset in sorted(acknowledged)}
    for broker_id, replica in replicas.items():
        where = f"on broker {broker_id}"
        if replica.end != end:
            wrong.append(f"{where}: ends at {replica.end} instead of {end}")
        offsets = [record.offset for record in replica.records]
        if offsets != sorted(set(offsets)):
            wrong.append(f"{where}: offsets do not rise")
        if replica.last != last:
            keys = [key for key in last if replica.last.get(key) != last[key]]
            wrong.append(f"{where}: the last values of {keys[:5]} are not what was acknowledged")
        other = [o for o, found in replica.by_offset.items() if acknowledged.get(o) != found]
        if other:
            wrong.append(f"{where}: other records than acknowledged at {other[:5]}")
    return wrong
