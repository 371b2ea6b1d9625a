"""Record batches that are almost right: none is stored unless its header is sound, and what is
stored hurts no reader, whatever its records are (Z3, B5).

Half of the injured batches get a CRC that fits, as one who means harm would give them: those are
what gets past the first check.
"""

import struct
from random import Random

import pytest

from support.logs import NOW, Simulated
from support.mutants import mutated
from tidelog.base.errors import KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.records.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from tidelog.records.checksum import crc32c
from tidelog.records.column_decoder import decode
from tidelog.records.inspector import keys_missing
from tidelog.records.reference import Record, encode_batch, read_records

BATCHES = 40_000
"""Of each codec: 200,000 in all."""
LIMIT = 1 << 20
CRC_AT = 17


def valid(random: Random, compression: int) -> bytes:
    records = [
        Record(
            offset=number,
            timestamp=NOW + random.randrange(100),
            key=random.choice((None, b"", b"key-%d" % number)),
            value=random.choice((None, b"", b"value " * random.randrange(20))),
            headers=(("name", random.choice((None, b"x"))),) * random.choice((0, 0, 1, 3)),
        )
        for number in range(random.choice((1, 1, 2, 5, 30)))
    ]
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": random.randrange(9)}
    fields = producer if random.random() < 0.3 else {}
    return bytes(encode_batch(records, compression=compression, **fields))  # type: ignore[arg-type]


def injured(random: Random, sound: list[bytes]) -> bytearray:
    batch = bytearray(mutated(random, random.choice(sound), random.choice(sound)))
    if len(batch) >= HEADER_SIZE and random.random() < 0.5:
        if random.random() < 0.5:
            batch[8:12] = (len(batch) - LENGTH_OVERHEAD).to_bytes(4, "big")
            batch[16] = MAGIC
        batch[CRC_AT : CRC_AT + 4] = crc32c(batch[CRC_START:]).to_bytes(4, "big")
    return batch


def check_header(batch: bytearray) -> None:
    """What Kafka's format says of a batch, in words of its own."""
    assert len(batch) >= HEADER_SIZE
    base_offset, length, _, magic, crc = struct.unpack_from(">qiibI", batch)
    attributes, delta = struct.unpack_from(">hi", batch, CRC_START)
    (count,) = struct.unpack_from(">i", batch, HEADER_SIZE - 4)
    assert (base_offset, length, magic) == (0, len(batch) - 12, 2)
    assert crc == crc32c(batch[CRC_START:])
    assert count == delta + 1 >= 1
    assert attributes & 7 <= 4


def reads(batch: bytearray) -> bool:
    """Whether all readers take it; whoever does not says so by a `KafkaError`."""
    outcomes = []
    for read in (
        lambda: list(read_records(batch, LIMIT)),
        lambda: keys_missing(batch, LIMIT),
        lambda: decode(batch, limit=LIMIT),
    ):
        try:
            read()
        except KafkaError:
            outcomes.append(False)
        else:
            outcomes.append(True)
    assert len(set(outcomes)) == 1, "the readers agree"
    return outcomes[0]


@pytest.mark.parametrize("compression", range(5))
def test_injured_batches_are_refused_or_harmless(compression: int) -> None:
    random = Random(compression)
    sound = [valid(random, compression) for _ in range(50)]
    log = Simulated(LogSettings()).log
    taken = unreadable = 0
    for _ in range(BATCHES):
        batch = injured(random, sound)
        try:
            log.checked(batch, NOW)
        except KafkaError:
            continue
        check_header(batch)
        taken += 1
        unreadable += not reads(batch)
    assert taken > BATCHES // 50
    assert unreadable > taken // 20
