"""gzip, snappy, lz4 and zstd, as Kafka's clients use them: what `compression` loads for a batch
that needs it.

Decompression writes into a buffer of known size, so that a batch that claims or contains
more than the limit costs at most the limit. Snappy comes in two forms, raw and in the frame of
the Java library that Kafka's own client uses; the frame is written, both are read:

     0  0x82 "SNAPPY" 0x00      8
     8  version                 4   1
    12  readable by version     4   1
    16  chunks                      length 4, raw snappy
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Buffer

_FRAME_MAGIC: Final = b"\x82SNAPPY\x00"
_FRAME_HEADER: Final = _FRAME_MAGIC + Struct(">ii").pack(1, 1)
_CHUNK_LENGTH: Final = Struct(">i")
_CHUNK_BYTES: Final = 32 * 1024
_GUESS_FACTOR: Final = 8
_FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
_LZ4_DEFAULT: Final = 9
_LZ4_FAST: Final = 1
_LZ4_HARD_MIN: Final = 3
_OUTPUT_FULL: Final = "failed to write whole buffer"


def compress_gzip(data: Buffer, level: int | None = None) -> bytes:
    return bytes(cramjam.gzip.compress(data, level))


def compress_zstd(data: Buffer, level: int | None = None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


def decompress_gzip(data: Buffer, limit: int) -> bytes:
    return _decompress_stream(cramjam.gzip.decompress_into, data, limit)


def decompress_lz4(data: Buffer, limit: int) -> bytes:
    return _decompress_stream(cramjam.lz4.decompress_into, data, limit)


def decompress_zstd(data: Buffer, limit: int) -> bytes:
    return _decompress_stream(cramjam.zstd.decompress_into, data, limit)


def compress_lz4(data: Buffer, level: int | None = None) -> bytes:
    # Kafka's Java reader refuses blocks that refer to earlier ones. Its writer is as fast as the
    # library's level 1 where nobody asks for another level than 9, its default, and looks
    # harder for any other: so does the library from 3 on.
    chosen = _LZ4_FAST if level in (None, _LZ4_DEFAULT) else max(_LZ4_HARD_MIN, level)
    compressor = cramjam.lz4.Compressor(level=chosen, block_linked=False, content_checksum=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_FRAME_HEADER]
    for start in range(0, len(view), _CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[start : start + _CHUNK_BYTES]))
        parts += _CHUNK_LENGTH.pack(len(chunk)), chunk
    return b"".join(parts)


def _decompress_stream(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> bytes:
    size = min(max(len(data) * _GUESS_FACTOR, _FIRST_GUESS_BYTES_MIN), limit)
    while True:
        output = bytearray(size)
        try:
            produced = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _garbage(str(error)) from error
        else:
            return bytes(memoryview(output)[:produced])
        if size == limit:
            raise _too_much(limit)
        # Step by step: to clear all that the limit allows takes longer than most batches.
        size = min(size * _GUESS_FACTOR, limit)


def decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    chunks = list(_snappy_chunks(view)) if _starts_frame(view, 0) else [view]
    sizes = [_declared_size(chunk) for chunk in chunks]
    if sum(sizes) > limit:
        raise _too_much(limit)
    output = bytearray(sum(sizes))
    space = memoryview(output)
    for chunk, size in zip(chunks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(chunk, space[:size])
        except cramjam.DecompressionError as error:
            raise _garbage(str(error)) from error
        space = space[size:]
    return bytes(output)


def _starts_frame(view: memoryview, position: int) -> bool:
    return bytes(view[position : position + len(_FRAME_MAGIC)]) == _FRAME_MAGIC


def _snappy_chunks(view: memoryview) -> Iterator[memoryview]:
    position = len(_FRAME_HEADER)
    while position < len(view):
        if _starts_frame(view, position):
            position += len(_FRAME_HEADER)
            continue
        start = position + _CHUNK_LENGTH.size
        length = _CHUNK_LENGTH.unpack_from(view, position)[0] if start <= len(view) else -1
        position = start + length
        if length < 0 or position > len(view):
            raise _garbage("a chunk reaches past the end")
        yield view[start:position]


def _declared_size(chunk: memoryview) -> int:
    try:
        return cramjam.snappy.decompress_raw_len(chunk)
    except cramjam.DecompressionError as error:
        raise _garbage(str(error)) from error


def _garbage(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"the records of a batch cannot be decompressed: {reason}"
    )


def _too_much(limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_record, f"a batch decompresses to more than the limit of {limit} bytes"
    )
