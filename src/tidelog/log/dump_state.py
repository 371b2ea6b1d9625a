"""The lines of the small files: producer snapshots, checkpoints, metadata and the marker of a
clean shutdown. They are read whole, by the same functions that the log reads them with, so a
file that a log would refuse is refused here with the same words.
"""

import base64
import json
from collections.abc import Iterator
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ports import Disk
from tidelog.log import checkpoints, snapshots
from tidelog.log.dump_options import DumpOptions
from tidelog.log.dump_text import printable
from tidelog.log.files import read_whole
from tidelog.log.producers import NO_TRANSACTION, Producer
from tidelog.records.batch import SEQUENCE_LIMIT

_SMALL_BYTES_MAX: Final = 64 * 1024 * 1024


def dump_snapshot(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    producers = snapshots.decode(path, _read(disk, path))
    for producer_id, producer in producers.by_id.items():
        yield f"producerId: {producer_id} {_producer(producer)}"


def _producer(producer: Producer) -> str:
    first = producer.txn_first_offset
    transaction = "OptionalLong.empty" if first == NO_TRANSACTION else f"OptionalLong[{first}]"
    line = (
        f"producerEpoch: {producer.epoch} coordinatorEpoch: {producer.coordinator_epoch}"
        f" currentTxnFirstOffset: {transaction} lastTimestamp: {producer.last_timestamp}"
    )
    if producer.last_offset < 0:
        return line
    delta = producer.last_offset_delta
    return (
        f"{line} firstSequence: {(producer.last_sequence - delta) % SEQUENCE_LIMIT}"
        f" lastSequence: {producer.last_sequence} lastOffset: {producer.last_offset}"
        f" offsetDelta: {delta} timestamp: {producer.last_timestamp}"
    )


def dump_offsets(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    for partition, offset in checkpoints.parse_offsets(path, _read(disk, path)).items():
        yield f"topic: {partition.topic} partition: {partition.partition} offset: {offset}"


def dump_epochs(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    for epoch, start_offset in checkpoints.parse_epochs(path, _read(disk, path)):
        yield f"leaderEpoch: {epoch} startOffset: {start_offset}"


def dump_partition_metadata(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    topic_id = checkpoints.parse_partition_metadata(path, _read(disk, path))
    text = base64.urlsafe_b64encode(topic_id)[:22].decode()
    yield f"version: 0 topicId: {text} hex: {topic_id.hex()}"


def dump_meta_properties(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    fields = checkpoints.parse_meta_properties(path, _read(disk, path))
    for name in sorted(fields):
        yield f"{printable(name.encode())}: {printable(fields[name].encode())}"


def dump_clean_shutdown(disk: Disk, path: str, _: DumpOptions) -> Iterator[str]:
    """Kafka wrote an empty file once, and writes the broker's epoch today."""
    data = _read(disk, path)
    if not data:
        yield "clean shutdown"
        return
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise BadValue(f"{path}: should be JSON or empty: {error}") from error
    if not isinstance(fields, dict):
        raise BadValue(f"{path}: should be a JSON object, not {printable(data[:80])}")
    shown = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    yield " ".join(["clean shutdown", *shown])


def _read(disk: Disk, path: str) -> bytes:
    size = disk.open(path, "read").size()
    if size > _SMALL_BYTES_MAX:
        raise BadValue(f"{path}: {size} bytes are too many for a file of this kind")
    return read_whole(disk, path)
