"""Snapshots of the producer state, `<offset>.snapshot`: the state just before that offset.

    0  version  2   1
    2  CRC-32C  4   of everything behind it
    6  count    4
   10  producers, 46 bytes each:
       producer id 8, epoch 2, last sequence 4, last offset 8, offset delta 4, timestamp 8,
       coordinator epoch 4, first offset of the open transaction 8 (-1: none)

One that was torn by a crash does not match its CRC; it is removed and an older one is used.
"""

from struct import Struct
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import NO_SEQUENCE
from tidelog.base.ports import Disk
from tidelog.log.files import SNAPSHOT, base_offset_of, file_name, read_whole, write_whole
from tidelog.log.producers import Producer, Producers
from tidelog.records.checksum import crc32c

VERSION: Final = 1
HEADER: Final = Struct(">hIi")
ENTRY: Final = Struct(">qhiqiqiq")
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 2
_CRC_START: Final = 6


def encode(producers: Producers) -> bytes:
    data = bytearray(HEADER.pack(VERSION, 0, len(producers.by_id)))
    for producer_id, producer in producers.by_id.items():
        data += ENTRY.pack(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.last_offset_delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.txn_first_offset,
        )
    _CRC.pack_into(data, _CRC_POSITION, crc32c(memoryview(data)[_CRC_START:]))
    return bytes(data)


def decode(path: str, data: bytes) -> Producers:
    if len(data) < HEADER.size:
        raise BadValue(f"{path}: {len(data)} bytes are too few for a snapshot")
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise BadValue(f"{path}: version {version}, this reads version {VERSION}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise BadValue(f"{path}: the CRC-32C does not match the content")
    if count < 0 or len(data) != HEADER.size + count * ENTRY.size:
        raise BadValue(f"{path}: {count} producers do not fill {len(data)} bytes")
    producers = Producers()
    for entry in ENTRY.iter_unpack(memoryview(data)[HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = entry
        producer = Producer(epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.txn_first_offset = first
        if sequence != NO_SEQUENCE:
            producer.remember(sequence, offset - delta, offset, timestamp)
        producers.restore(producer_id, producer)
    return producers


def offsets_of(names: list[str]) -> list[int]:
    """The offsets of the snapshots in a folder's listing, ascending."""
    found = (base_offset_of(name, SNAPSHOT) for name in names)
    return sorted(offset for offset in found if offset is not None)


def write(disk: Disk, folder: str, offset: int, producers: Producers, *, durable: bool) -> None:
    path = f"{folder}/{file_name(offset, SNAPSHOT)}"
    write_whole(disk, path, encode(producers), durable=durable)


def read_latest(disk: Disk, folder: str, upto: int) -> tuple[int, Producers] | None:
    """The newest good snapshot at or below `upto`; damaged ones on the way are removed. One that is
    gone since it was listed was superfluous: a newer one was being written."""
    for offset in reversed(offsets_of(disk.list(folder))):
        path = f"{folder}/{file_name(offset, SNAPSHOT)}"
        if offset > upto:
            continue
        try:
            return offset, decode(path, read_whole(disk, path))
        except FileNotFoundError:
            continue
        except BadValue:
            disk.remove(path)
    return None
