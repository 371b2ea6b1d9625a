"""Control batches: the records a log writes about itself, which no consumer is shown.

    key    version 2, type 2          type: 0 abort, 1 commit, then those of Kafka's quorum
    value  version 2, coordinator epoch 4         of an end-of-transaction marker

A later version may append fields to either; what is known here is read and the rest ignored,
and a type nobody knows is skipped by readers, as Kafka does.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Buffer
from tidelog.records.batch import read_header
from tidelog.records.reference import Record, encode_batch, read_records

_KEY: Final = Struct(">hh")
_END_TRANSACTION: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN: Final = frozenset(ControlType)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """How a producer's transaction ended in one partition, and who said so."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlType:
    if key is None or len(key) < _KEY.size:
        raise _invalid(f"a control record's key has at least {_KEY.size} bytes, this is {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"a control record's key has version {version}")
    return ControlType(number) if number in _KNOWN else ControlType.UNKNOWN


def encode_end_transaction(
    marker: EndTransaction, *, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """The batch of one record that ends a transaction in a partition."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=_KEY.pack(_VERSION, kind),
        value=_END_TRANSACTION.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def read_end_transaction(batch: Buffer) -> EndTransaction | None:
    """The marker in a control batch; None if the batch is empty or about something else."""
    header = read_header(batch)
    record = next(read_records(batch), None)
    if record is None:
        return None
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return EndTransaction(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        committed=kind is ControlType.COMMIT,
        coordinator_epoch=_coordinator_epoch(record.value),
    )


def _coordinator_epoch(value: bytes | None) -> int:
    if value is None or len(value) < _END_TRANSACTION.size:
        raise _invalid(f"an end of a transaction has {_END_TRANSACTION.size} bytes, not {value!r}")
    version, epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise _invalid(f"an end of a transaction has version {version}")
    assert isinstance(epoch, int)
    return epoch


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
