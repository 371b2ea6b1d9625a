"""Coverage-guided fuzzing of the wire layer: `pip install atheris`, then
`python tests/fuzz_wire.py -max_total_time=60 [a folder for what it finds]`.

It begins with valid requests and answers of every API and version served, and looks for bytes
that make anything but a `KafkaError` come out, take long or use much memory. atheris is not
among the development dependencies: it has wheels for Linux and few versions of Python only.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from support.mutants import receive, requests, responses, serve
from tidelog.base.errors import KafkaError
from tidelog.wire.codec import entity_type
from tidelog.wire.frames import FrameReader, ReceiveBuffers

_ANSWER = b"\xff"
_STREAM = b"\xfe"


def attempt(data: bytes) -> None:
    """One input. Its first byte says what it is: an answer, a stream, or else a request."""
    try:
        if data[:1] == _ANSWER and len(data) > 4:
            api_key, version = int.from_bytes(data[1:3], "big"), data[3]
            entity_type(api_key, version, "response")
            receive(api_key, version, data[4:])
        elif data[:1] == _STREAM:
            _stream(data[1:])
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
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames[:20])
    for number, content in enumerate((*frames, *answers, _STREAM + stream)):
        (folder / f"{number:05}").write_bytes(content)


def main(arguments: list[str]) -> None:
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    for name in ("values", "topics", "header", "frames", "produce", "fetch"):
        _instrument(atheris, f"tidelog.wire.{name}")
    for name in ("produce_client", "fetch_client", "entity_reader", "codec"):
        _instrument(atheris, f"tidelog.wire.{name}")
    with tempfile.TemporaryDirectory() as corpus:
        write_corpus(Path(corpus))
        limits = ["-rss_limit_mb=512", "-timeout=5", "-max_len=4096"]
        atheris.Setup([arguments[0], *limits, *arguments[1:], corpus], attempt)
        atheris.Fuzz()


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
