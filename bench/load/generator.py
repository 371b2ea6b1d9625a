"""The generator from Python: compiled when first used, given streams of frames, its result read.

It is in C because the cores are few: whatever sends the load must take little of what the broker
could have. `Generator.find()` is None, with the reason said, where there is no C compiler.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.load.frames import Frame
from bench.load.processes import cpu_seconds

Address = tuple[str, int]

_HERE = Path(__file__).parent
_PROGRAMS = {
    "generator": ["generator", "plan", "answers", "latency", "sequences"],
    "answerer": ["answerer"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind: `frames` in turns over `connections`, each with up to `in_flight`
    without an answer; `rate` a second in all, or as many as possible if it is 0. With `follow`
    each fetch goes on where the last answer ended, and from the start at the end of the log.
    When `megabytes` have been produced, or consumed, all is over. `address` is of its own broker,
    where not all streams go to the same. Frames of an idempotent producer get the sequences that
    are next whenever they are sent: one connection, and as many frames as are in flight."""

    name: str
    frames: Sequence[Frame]
    connections: int = 1
    in_flight: int = 1
    rate: float = 0
    megabytes: float = 0
    follow: bool = False
    address: Address | None = None

    def line(self, path: Path) -> str:
        first = self.frames[0]
        values: dict[str, object] = {
            "name": self.name,
            "frames": path,
            "connections": self.connections,
            "in_flight": self.in_flight,
            "rate": self.rate,
            "megabytes": self.megabytes,
            "follow": int(self.follow),
            "topic_ids": int(first.topic_ids),
            "error_at": first.error_at,
            "error_stride": first.error_stride,
            "error_count": first.error_count,
            "offset_at": first.offset_at,
            "offset_stride": first.offset_stride,
            "sequence_at": first.sequence_at,
            "sequence_stride": first.sequence_stride,
            "sequence_count": first.sequence_count,
            "sequence_step": first.sequence_step,
        }
        if first.crc_flips:
            assert self.connections == 1, "a producer writes on one connection"
            assert len(self.frames) >= self.in_flight, "a frame in flight must not change"
            values["crc_flips"] = ",".join(f"{flip:x}" for flip in first.crc_flips)
        if self.address is not None:
            values["host"], values["port"] = self.address
        return " ".join(f"{key}={value}" for key, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one stream did, and what the broker used meanwhile for all of them."""

    name: str
    seconds: float
    requests: int
    bytes_out: int
    bytes_in: int
    batch_bytes: int
    errors: int
    first_error: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    own_cpu_seconds: float
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def megabytes(self) -> float:
        """Produced, or consumed in whole batches: what is fetched of the next is thrown away."""
        return (self.batch_bytes or self.bytes_out) / 1e6

    @property
    def speed(self) -> float:
        return self.megabytes / self.seconds

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu_seconds / self.megabytes * 1000

    @property
    def cpu_us(self) -> float:
        """Of the broker, for a request."""
        return self.cpu_seconds / self.requests * 1e6


class Generator:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def find(cls) -> "Generator | None":
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            print("no load can be generated: there is no C compiler here", file=sys.stderr)
            return None
        folder = Path(tempfile.mkdtemp(prefix="tidelog-load-"))
        for program, sources in _PROGRAMS.items():
            files = [str(_HERE / f"{name}.c") for name in sources]
            subprocess.run([compiler, "-O2", "-o", str(folder / program), *files], check=True)
        return cls(folder)

    def close(self) -> None:
        shutil.rmtree(self._folder)

    def run(
        self,
        address: Address,
        streams: Sequence[Stream],
        *,
        pids: Sequence[int] = (),
        seconds: float = 5,
        warm_up: float = 0.5,
    ) -> list[Load]:
        """One load for each stream, with the CPU time of the brokers with these process ids."""
        plan = self._write_plan(streams, seconds, warm_up)
        command = [str(self._folder / "generator"), address[0], str(address[1]), str(plan)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "measuring":
                raise RuntimeError("the load could not be started")
            before = cpu_seconds(*pids)
            lines = [process.stdout.readline() for _ in streams]
            spent = cpu_seconds(*pids) - before
        if not all(lines):
            raise RuntimeError("the load broke off")
        loads = [Load(**json.loads(line), cpu_seconds=spent) for line in lines]
        for load in loads:
            if not load.requests:
                raise RuntimeError(f"{load.name}: no answer in {seconds} seconds")
            if load.errors:
                print(f"{load.name}: {load.errors} errors, {load.first_error}", file=sys.stderr)
        return loads

    def answerer(self) -> "subprocess.Popen[str]":
        """A server that does nothing but answer; its port is the first line it prints."""
        command = [str(self._folder / "answerer")]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _write_plan(self, streams: Sequence[Stream], seconds: float, warm_up: float) -> Path:
        lines = [f"warm_up {warm_up}", f"seconds {seconds}"]
        for number, stream in enumerate(streams):
            path = self._folder / f"frames-{number}"
            path.write_bytes(b"".join(frame.data for frame in stream.frames))
            lines.append(stream.line(path))
        plan = self._folder / "plan"
        plan.write_text("\n".join(lines) + "\n")
        return plan
