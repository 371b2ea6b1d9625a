"""Batches written by other people's clients, read by the reference and by the kernels alike."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from tidelog.records.batch import check_produced, check_stored, read_header
from tidelog.records.columns import decode, encode
from tidelog.records.reference import Record, encode_batch, read_records

with warnings.catch_warnings():
    # It reads its schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

CAPTURED = Path(__file__).parent / "captured"
RECORDS = [
    Record(
        offset=index,
        timestamp=1_700_000_000_000 + index * (7 if index % 2 else -3),
        key=None if index % 3 == 0 else b"key %d" % index,
        value=None if index % 5 == 0 else b"value " * index,
        headers=(("trace", b"%d" % index), ("none", None), ("", b"")) if index % 4 == 0 else (),
    )
    for index in range(50)
]


def built(builder: Any) -> bytes:
    for record in RECORDS:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def arguments(codec: int) -> dict[str, Any]:
    return {
        "magic": 2,
        "compression_type": codec,
        "is_transactional": 0,
        "producer_id": 9,
        "producer_epoch": 1,
        "base_sequence": 5,
        "batch_size": 1 << 20,
    }


def expect_both_read(batch: bytes, expected: list[Record]) -> None:
    check_produced(batch, 1 << 20)
    assert list(read_records(batch, verify_crc=True)) == expected
    columns = decode(batch, verify_crc=True)
    assert columns["offset"].to_pylist() == [record.offset for record in expected]
    assert columns["timestamp"].to_pylist() == [record.timestamp for record in expected]
    assert columns["key"].to_pylist() == [record.key for record in expected]
    assert columns["value"].to_pylist() == [record.value for record in expected]
    assert [
        tuple((header["key"], header["value"]) for header in headers or ())
        for headers in columns["headers"].to_pylist()
    ] == [record.headers for record in expected]


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_aiokafka_are_read(codec: int) -> None:
    """S11"""
    batch = built(AiokafkaBuilder(**arguments(codec)))
    assert read_header(batch).compression == codec
    expect_both_read(batch, RECORDS)


@pytest.mark.parametrize("codec", [0, 1])
def test_batches_of_kafka_python_are_read(codec: int) -> None:
    """S11; its other codecs need packages that are not installed."""
    batch = built(KafkaPythonBuilder(**arguments(codec)))
    assert read_header(batch).compression == codec
    expect_both_read(batch, RECORDS)


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd", "idempotent"])
def test_batches_of_librdkafka_are_read(name: str) -> None:
    """S11"""
    sent = [
        Record(
            offset=index,
            timestamp=record["timestamp"],
            key=as_bytes(record["key"]),
            value=as_bytes(record["value"]),
            headers=tuple((key, as_bytes(value)) for key, value in record["headers"]),
        )
        for index, record in enumerate(json.loads((CAPTURED / "sent.json").read_text()))
    ]
    batch = (CAPTURED / f"{name}.bin").read_bytes()
    header = read_header(batch)
    assert header.compression == {"none": 0, "gzip": 1, "snappy": 2, "zstd": 4}.get(name, 3)
    assert header.producer_id == (4242 if name == "idempotent" else -1)
    expect_both_read(batch, sent)


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize("codec", range(5))
def test_our_batches_are_read_by_aiokafka(codec: int) -> None:
    ours = encode_batch(RECORDS, compression=codec)
    (columns,) = encode(decode(ours), compression=codec)
    for batch in (ours, columns):
        check_stored(batch)
        reader = AiokafkaBatch(bytes(batch))
        assert reader.validate_crc()
        assert [
            Record(
                offset=record.offset,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
            )
            for record in reader
        ] == RECORDS


def test_an_uncompressed_batch_has_the_bytes_of_aiokafka() -> None:
    theirs = bytearray(built(AiokafkaBuilder(**arguments(0))))
    ours = encode_batch(RECORDS, producer_id=9, producer_epoch=1, base_sequence=5)
    theirs[12:16] = ours[12:16]  # the leader epoch, which the leader writes
    assert ours == theirs
