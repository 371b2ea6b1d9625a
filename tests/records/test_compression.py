"""The five codecs: both ways, in every form clients write, and never more than allowed."""

import subprocess
import sys
from pathlib import Path
from struct import pack

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.limits import DECOMPRESSED_BYTES_MAX, decompressed_bytes_max
from tidelog.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
FRAME = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)
TEXT = b"the same words again and again, " * 5000


def refusal(codec: int, data: bytes, limit: int = DECOMPRESSED_BYTES_MAX) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        decompress(codec, data, limit)
    return raised.value.code


@given(st.integers(0, 4), st.binary(max_size=2000), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_what_was_compressed_comes_back(codec: int, data: bytes, times: int) -> None:
    """S11"""
    data *= times
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data) + 1) == data


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_over_the_limit_is_refused_by_name(codec: int) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(KafkaError, match=f"limit of {len(TEXT) - 1} bytes") as raised:
        decompress(codec, packed, len(TEXT) - 1)
    assert raised.value.code is ErrorCode.invalid_record
    assert refusal(codec, packed, 0) is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", CODECS)
def test_what_grows_past_the_first_guess_is_decompressed_whole(codec: int) -> None:
    zeros = bytes(20_000_000)
    assert decompress(codec, compress(codec, zeros), len(zeros)) == zeros


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_off_is_corrupt(codec: int) -> None:
    packed = compress(codec, TEXT)
    assert refusal(codec, packed[:-1]) is ErrorCode.corrupt_message
    assert refusal(codec, packed[: len(packed) // 2]) is ErrorCode.corrupt_message
    assert refusal(codec, b"") is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_codecs_that_do_not_exist_are_unsupported(codec: int) -> None:
    assert refusal(codec, b"") is ErrorCode.unsupported_compression_type
    with pytest.raises(KafkaError):
        compress(codec, b"")


def test_snappy_is_read_raw_framed_and_in_several_frames() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    chunk = pack(">i", len(raw)) + raw
    assert decompress(SNAPPY, raw) == TEXT
    assert decompress(SNAPPY, FRAME + chunk + chunk) == TEXT * 2
    assert decompress(SNAPPY, FRAME + chunk + FRAME + chunk) == TEXT * 2
    assert decompress(SNAPPY, FRAME) == b""


def test_snappy_is_written_in_the_frame_of_the_java_client() -> None:
    packed = compress(SNAPPY, TEXT)
    assert packed.startswith(FRAME)
    first_size = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first_size]) == 32 * 1024


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 5])
def test_a_snappy_chunk_that_reaches_past_the_end_is_corrupt(length: int) -> None:
    assert refusal(SNAPPY, FRAME + pack(">i", length) + b"abc") is ErrorCode.corrupt_message
    assert refusal(SNAPPY, FRAME + b"\0\0\0") is ErrorCode.corrupt_message


def test_a_snappy_chunk_that_lies_about_its_size_is_refused() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f"
    body = bytes(cramjam.snappy.compress_raw(TEXT))[3:]
    assert refusal(SNAPPY, four_gigabytes + body) is ErrorCode.invalid_record
    chunk = pack(">i", 5 + len(body)) + four_gigabytes + body
    assert refusal(SNAPPY, FRAME + chunk) is ErrorCode.invalid_record
    a_byte_more = bytes([0x81 + (len(TEXT) & 0x7F)])
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert refusal(SNAPPY, a_byte_more + raw[1:]) is ErrorCode.corrupt_message


def test_lz4_is_written_as_java_reads_it() -> None:
    packed = compress(LZ4, TEXT)
    magic, flags, block_size = packed[:4], packed[4], packed[5]
    assert magic == bytes.fromhex("04224d18")
    assert flags >> 6 == 1
    assert flags & 0b0010_0000, "blocks must not refer to earlier ones"
    assert not flags & 0b0000_0011, "reserved, and no dictionary"
    assert 4 <= block_size >> 4 <= 7


def test_lz4_with_a_wrong_header_checksum_is_corrupt() -> None:
    packed = bytearray(compress(LZ4, TEXT))
    packed[6] ^= 1
    assert refusal(LZ4, bytes(packed)) is ErrorCode.corrupt_message


def test_zstd_is_read_with_and_without_content_size_and_in_several_frames() -> None:
    sized = bytes(cramjam.zstd.compress(TEXT))
    compressor = cramjam.zstd.Compressor()
    compressor.compress(TEXT)
    unsized = bytes(compressor.finish())
    assert sized[4] != unsized[4]
    skippable = bytes.fromhex("502a4d18") + pack("<i", 3) + b"abc"
    assert decompress(ZSTD, unsized) == TEXT
    assert decompress(ZSTD, sized + skippable + unsized) == TEXT * 2


def test_gzip_is_read_in_several_members() -> None:
    assert decompress(GZIP, compress(GZIP, b"one ") + compress(GZIP, b"two")) == b"one two"


def test_records_that_are_not_compressed_are_given_back_as_they_are() -> None:
    assert decompress(0, memoryview(TEXT), 10) == TEXT


@given(
    st.sampled_from(CODECS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.integers(0, 400),
)
@settings(max_examples=500, deadline=None)
def test_garbage_raises_nothing_but_a_kafka_error(
    codec: int, changes: list[tuple[int, int]], size: int
) -> None:
    packed = bytearray(compress(codec, TEXT[:3000]))
    for position, byte in changes:
        packed[position % len(packed)] = byte
    expect_bytes_or_refusal(codec, bytes(packed[: size if size < len(packed) else None]))


@given(st.sampled_from(CODECS), st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_noise_raises_nothing_but_a_kafka_error(codec: int, data: bytes) -> None:
    expect_bytes_or_refusal(codec, data)
    expect_bytes_or_refusal(SNAPPY, FRAME + data)
    expect_bytes_or_refusal(ZSTD, b"\x28\xb5\x2f\xfd" + data)
    expect_bytes_or_refusal(LZ4, b"\x04\x22\x4d\x18" + data)
    expect_bytes_or_refusal(GZIP, b"\x1f\x8b\x08" + data)


def expect_bytes_or_refusal(codec: int, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 5000)) <= 5000
    except KafkaError as error:
        if error.code not in (ErrorCode.corrupt_message, ErrorCode.invalid_record):
            raise


BOMB = """
import resource, sys
from tidelog.base.errors import KafkaError
from tidelog.records.compression import decompress
data = open(sys.argv[2], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), data, 8 * 1024 * 1024)
except KafkaError as error:
    print(error.code.name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: int, tmp_path: Path) -> None:
    """A batch of 1 MiB can decompress to gigabytes; only what is allowed is ever held."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compress(codec, bytes(100_000_000)))
    command = [sys.executable, "-c", BOMB, str(codec), str(bomb)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "invalid_record"
    allowed_kib = 8 * 1024 * 2 + 12 * 1024  # first guess and limit, and the decoder's window
    assert int(said[1]) < allowed_kib


def test_the_limit_follows_the_topic_up_to_64_mib() -> None:
    assert decompressed_bytes_max(1_048_588) == 20_971_760
    assert decompressed_bytes_max(10_000_000) == 64 * 1024 * 1024 == DECOMPRESSED_BYTES_MAX
