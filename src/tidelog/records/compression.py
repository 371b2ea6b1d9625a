"""The codecs of a batch's records: none, gzip, snappy, lz4, zstd, as Kafka's clients use them.

Decompression costs at most its limit in memory: a batch that claims or contains more fails with
INVALID_RECORD; content that is not what its codec says fails with CORRUPT_MESSAGE. Nothing else
is ever raised. What the codecs are made of is loaded with the first batch that is compressed.
"""

from typing import Final

from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.base.ports import Buffer
from tidelog.records.batch import unknown_compression

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """At a level that the codec knows, or at its usual one."""
    if codec == NONE:
        return bytes(data)
    from tidelog.records import codecs

    match codec:
        case 1:
            return codecs.compress_gzip(data, level)
        case 2:
            return codecs.compress_snappy(data)
        case 3:
            return codecs.compress_lz4(data, level)
        case 4:
            return codecs.compress_zstd(data, level)
    raise unknown_compression(codec)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """At most `limit` bytes; records that are not compressed are given back as they are."""
    if codec == NONE:
        return bytes(data)
    from tidelog.records import codecs

    match codec:
        case 1:
            return codecs.decompress_gzip(data, limit)
        case 2:
            return codecs.decompress_snappy(data, limit)
        case 3:
            return codecs.decompress_lz4(data, limit)
        case 4:
            return codecs.decompress_zstd(data, limit)
    raise unknown_compression(codec)
