"""Records that clients get wrong first: null and empty keys and values, headers of all kinds, text
of many scripts, bytes that are no text. Every client sends them and must get them back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.records.batch import BatchHeader, walk

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BIG: Final = 10 * 1024 * 1024
TIME: Final = 1_700_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


SAMPLES: Final = [
    Sample(key=b"key", value=b"value"),
    Sample(key=None, value=b"no key"),
    Sample(key=b"no value", value=None),
    Sample(key=None, value=None),
    Sample(key=b"", value=b""),
    Sample(key="ключ".encode(), value="値 🌊 žluťoučký".encode()),
    Sample(key=bytes(range(256)), value=bytes(range(255, -1, -1))),
    Sample(
        key=b"headers",
        value=b"of all kinds",
        headers=(("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("ž", b"\xff\x00")),
    ),
    *(Sample(key=b"k%d" % n, value=b"compressible " * n) for n in range(1, 40)),
]
KEY_OR_VALUE: Final = [
    sample for sample in SAMPLES if sample.key is not None or sample.value is not None
]
"""For clients that insist on one of them."""
KEYS: Final = [
    b"",
    b"a",
    b"key",
    "ключ".encode(),
    bytes(range(256)),
    *(b"%d" % n for n in range(40)),
]


def as_sample(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | Headers | None
) -> Sample:
    return Sample(key=key, value=value, headers=tuple(headers or ()))


def stored_batches(log_dir: Path, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of all batches in the files of a partition."""
    files = sorted((log_dir / f"{topic}-{partition}").glob("*.log"))
    assert files, f"{topic}-{partition} has a log"
    return [header for file in files for _, header in walk(file.read_bytes())]


def stored_codecs(log_dir: Path, topic: str) -> set[int]:
    """What the batches of partition 0 are compressed with."""
    return {header.compression for header in stored_batches(log_dir, topic)}
