"""Coverage-guided fuzzing of the wire layer: `make fuzz`, or with options of libFuzzer
`python tests/fuzz_wire.py -max_total_time=60`.

It begins with valid requests and answers of every API and version served, and looks for bytes
that make anything but a `KafkaError` come out, take long or use much memory. What does is kept in
`.fuzz`, with the inputs that led somewhere new, from which the next run goes on. atheris is in an
extra of its own: it has wheels for Linux and few versions of Python only.
"""

import struct
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from support.mutants import receive, requests, responses, serve
from tidelog.base.errors import KafkaError
from tidelog.handlers.old_produce import VERSIONS, refusal
from tidelog.wire.codec import entity_type
from tidelog.wire.fetch import FETCH
from tidelog.wire.fetch_client import FOLLOWER_VERSION
from tidelog.wire.follower_fetch import read_answer
from tidelog.wire.frames import FrameReader, ReceiveBuffers
from tidelog.wire.header import read_request_header
from tidelog.wire.produce_client import PRODUCE

FOUND = Path(__file__).parents[1] / ".fuzz"
PROGRESS_EVERY = 20_000

_ANSWER = b"\xff"
_STREAM = b"\xfe"
_FOLLOWERS_ANSWER = b"\xfd"
_OLD_PRODUCE = b"\xfc"


def attempt(data: bytes) -> None:
    """One input. Its first byte says what it is: an answer, one that a follower reads, a stream, an
    old Produce request, or else any request."""
    try:
        if data[:1] == _ANSWER and len(data) > 4:
            api_key, version = int.from_bytes(data[1:3], "big"), data[3]
            entity_type(api_key, version, "response")
            receive(api_key, version, data[4:])
        elif data[:1] == _STREAM:
            _stream(data[1:])
        elif data[:1] == _FOLLOWERS_ANSWER:
            read_answer(memoryview(data)[1:])
        elif data[:1] == _OLD_PRODUCE:
            header, at = read_request_header(memoryview(data)[1:])
            refusal(header, memoryview(data)[1:], at)
        else:
            serve(data)
    except KafkaError:
        return


def _stream(data: bytes) -> None:
    reader = FrameReader(ReceiveBuffers(20_000), 100_000)
    rest = memoryview(data)
    while rest:
        buffer = reader.buffer()
        size = min(len(buffer), len(rest), 1 + rest[0])
        buffer[:size] = rest[:size]
        rest = rest[size:]
        for frame in reader.received(size):
            serve(bytes(frame))


def write_corpus(folder: Path) -> None:
    """The inputs to begin with."""
    frames = requests(seed=1, each=2)
    answers = [
        _ANSWER + key.to_bytes(2, "big") + bytes((version,)) + frame
        for key, version, frame in responses(2, each=1)
    ]
    followed = [
        _FOLLOWERS_ANSWER + frame
        for key, version, frame in responses(3, each=4)
        if (key, version) == (FETCH, FOLLOWER_VERSION)
    ]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames[:20])
    old = [_OLD_PRODUCE + _old_produce(version) for version in VERSIONS]
    for number, content in enumerate((*frames, *answers, *followed, *old, _STREAM + stream)):
        (folder / f"{number:05}").write_bytes(content)


def _old_produce(version: int) -> bytes:
    partition = struct.pack(">ii", 3, 5) + b"bytes"
    topic = struct.pack(">h5si", 5, b"tides", 2) + partition * 2
    return struct.pack(">hhihhii", PRODUCE, version, 7, -1, 1, 1000, 2) + topic * 2


def main(arguments: list[str]) -> None:
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: pip install -e '.[fuzz]'")
    for name in ("values", "topics", "header", "frames", "produce", "fetch"):
        _instrument(atheris, f"tidelog.wire.{name}")
    for name in ("produce_client", "fetch_client", "follower_fetch", "entity_reader", "codec"):
        _instrument(atheris, f"tidelog.wire.{name}")
    _instrument(atheris, "tidelog.handlers.old_produce")
    corpus = FOUND / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    write_corpus(corpus)
    limits = ["-rss_limit_mb=512", "-timeout=5", "-max_len=4096", "-verbosity=0"]
    options = [*limits, f"-artifact_prefix={FOUND}/", *arguments[1:], str(corpus)]
    atheris.Setup([arguments[0], *options], with_progress())
    atheris.Fuzz()


def with_progress() -> Callable[[bytes], None]:
    """`attempt`, and a line now and then."""
    numbers = count(1)

    def attempt_and_count(data: bytes) -> None:
        number = next(numbers)
        if number % PROGRESS_EVERY == 0:
            print(f"{number} inputs, none that hurts", flush=True)
        attempt(data)

    return attempt_and_count


def _instrument(atheris: Any, module: str) -> None:
    """Every function of a module reports which of its branches ran."""
    for value in vars(sys.modules[module]).values():
        if callable(value) and getattr(value, "__module__", "") == module:
            if isinstance(value, type):
                for member in vars(value).values():
                    if hasattr(member, "__code__"):
                        atheris.instrument_func(member)
            elif hasattr(value, "__code__"):
                atheris.instrument_func(value)


if __name__ == "__main__":
    main(sys.argv)
