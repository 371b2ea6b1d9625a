"""What an append, a lookup and a start cost, and that none of it grows with the log.

Times are CPU time, user and system, the median of several rounds; where two things are compared
they run in turns, the order flipped each round. The large log is real: 10 GB on disk, unless
`TIDELOG_BENCH_GB` says otherwise. Figures without system calls come from files that are
in memory, and with garbage collection off, as in a broker: what is left is what Python costs.
"""

import gc
import os
import random
import shutil
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from statistics import median
from time import perf_counter, process_time
from typing import Any

from crc32c import crc32c

from bench.load.contest import Row, add_only, taken
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Buffer, File
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import HEADER, read_header, seal
from tidelog.records.reference import Record, encode_batch
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk

FOLDER = Path(".bench")
PARTITION = TopicPartition("bench", 0)
IDENTITY = {"broker.id": "0"}
NOW = 1_700_000_000_000
LARGE_GB = float(os.environ.get("TIDELOG_BENCH_GB", "10"))
ROUNDS = 7
LOOKUPS = 4000
SMALL_LOGS = 256


class CountingDisk(RealDisk):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def open(self, path: str, mode: Any) -> Any:
        return CountingFile(self, super().open(path, mode))


class CountingFile:
    def __init__(self, disk: CountingDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def pread(self, size: int, offset: int) -> bytes:
        data: bytes = self._file.pread(size, offset)
        self._disk.bytes_read += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class MemoryFile:
    """A file without system calls."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Takes it for written."""

    def size(self) -> int:
        return len(self._data)


def batch_of(size: int, **fields: Any) -> bytearray:
    """A produced batch of about `size` bytes, in records of 100 bytes."""
    count = max(1, size // 110)
    value = b"x" * 100
    return encode_batch(
        [Record(offset=i, timestamp=NOW, value=value) for i in range(count)], **fields
    )


def open_dir(name: str, settings: LogSettings, disk: RealDisk | None = None) -> LogDir:
    """With as many open files as the system lets a server have."""
    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))
    files = min(most // 2, 16_384)
    log_dir = LogDir(str(FOLDER / name), disk or RealDisk(), RealClock(), open_files_max=files)
    log_dir.open(IDENTITY, lambda _: settings)
    return log_dir


def new_log(name: str, settings: LogSettings) -> PartitionLog:
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return open_dir(name, settings).create_log(PARTITION, settings)


@contextmanager
def no_garbage() -> Iterator[None]:
    """A broker collects when it has nothing else to do."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def seconds(work: Callable[[], Any]) -> float:
    started = process_time()
    work()
    return process_time() - started


def ratio(measured: Callable[[], float], baseline: Callable[[], float]) -> float:
    """How many times the CPU time of the baseline. Both say how many seconds they took."""
    ratios = []
    measured(), baseline()
    for number in range(ROUNDS):
        if number % 2:
            first, second = measured(), baseline()
        else:
            second, first = baseline(), measured()
        ratios.append(first / second)
    return median(ratios)


def append_ratio(size: int, total: int) -> Row:
    """Against a bare loop that looks at the header, checks the CRC and writes. Neither counts
    the making and removing of files."""
    data = batch_of(size)
    settings = LogSettings(segment_bytes=1 << 30, max_message_bytes=1 << 24)
    count = total // len(data)

    def through_the_log() -> float:
        log = new_log("append", settings)

        def work() -> None:
            for _ in range(count):
                data[:8] = bytes(8)
                log.append_as_leader(data, 0, NOW)

        spent = seconds(work)
        remove(log)
        return spent

    def bare() -> float:
        path = FOLDER / "bare"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

        def work() -> None:
            position = 0
            for _ in range(count):
                header = HEADER.unpack_from(data)
                assert crc32c(memoryview(data)[21:]) == header[4]
                position += os.pwrite(descriptor, data, position)

        spent = seconds(work)
        os.close(descriptor)
        path.unlink()
        return spent

    name = f"append of {len(data) // 1024} KB batches, CPU against header + crc32c + pwrite"
    return {"name": name, "value": ratio(through_the_log, bare), "unit": "x", "target": "<= 1.3"}


def remove(log: PartitionLog) -> None:
    """Lets go of a log and its pages, so that the next round finds what this one found."""
    folder = Path(log.folder).parent
    log.segments.active.file = None
    log.segments.active.forget()
    assert isinstance(log.home, LogDir)
    log.home.logs.clear()
    shutil.rmtree(folder)
    gc.collect()


def append_cost(*, idempotent: bool) -> Row:
    log = new_log("cost", LogSettings())
    log.segments.active.file = MemoryFile()  # type: ignore[assignment]
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if idempotent else {}
    one = batch_of(100, **producer)
    head = read_header(one)
    costs = []
    sequence = 0
    for _ in range(ROUNDS):
        batches = []
        for _ in range(20_000):
            if idempotent:
                head = head._replace(base_sequence=sequence)
                sequence += 1
            batches.append(seal(head, one[HEADER.size :]))
        append = log.append_as_leader
        with no_garbage():
            started = process_time()
            for item in batches:
                append(item, 0, NOW)
            costs.append((process_time() - started) / len(batches) * 1e6)
    who = "an idempotent producer" if idempotent else "a plain producer"
    name = f"append as leader for {who}, without system calls"
    return {"name": name, "value": median(costs), "unit": "µs", "target": "<= 3"}


def lookup_costs() -> list[Row]:
    """At the tail, where consumers and followers are, and in a closed segment."""
    log = new_log("cost", LogSettings(segment_bytes=4 << 20))
    data = batch_of(16_000)
    for _ in range(600):
        data[:8] = bytes(8)
        log.append_as_leader(data, 0, NOW)
    log.segments.active.write_indexes()
    for segment in log.segments.closed:
        for lazy in (segment._closed_file, segment.offset_index._file):
            lazy._file = MemoryFile(Path(lazy.path).read_bytes())  # type: ignore[assignment]
    end = log.log_end_offset
    closed_end = log.segments.active.base_offset
    draw = random.Random(1)
    rows = []
    for where, low, high in (
        ("at the tail", end - 2000, end - 1),
        ("in a closed segment", 0, closed_end - 1),
    ):
        offsets = [draw.randint(low, high) for _ in range(LOOKUPS)]
        costs = []
        for _ in range(ROUNDS):
            read = log.read
            with no_garbage():
                started = process_time()
                for offset in offsets:
                    read(offset, 1 << 20, end)
                costs.append((process_time() - started) / LOOKUPS * 1e6)
        name = f"fetch lookup {where}, without system calls"
        rows.append({"name": name, "value": median(costs), "unit": "µs", "target": "<= 3"})
    return rows


def write_log(name: str, total: int, settings: LogSettings) -> None:
    """Of batches with one record of 16 KB, 5 ms apart."""
    log = new_log(name, settings)
    data = encode_batch([Record(offset=0, timestamp=NOW, value=b"x" * 16_000)])
    step_ms = 5
    for number in range(total // len(data)):
        at = NOW + number * step_ms
        header = read_header(data)._replace(base_offset=0, base_timestamp=at, max_timestamp=at)
        log.append_as_leader(seal(header, data[HEADER.size :]), 0, NOW)
    assert isinstance(log.home, LogDir)
    log.home.close()


def growth() -> list[Row]:
    """Random lookups in a log of 10 MB and in one a thousand times as large."""
    settings = LogSettings(segment_bytes=32 << 20)
    large_bytes = int(LARGE_GB * (1 << 30))
    write_log("small", 10 << 20, settings)
    write_log("large", large_bytes, settings)
    disk = CountingDisk()
    started = perf_counter()
    counted = open_dir("large", settings, disk)
    opened_ms = (perf_counter() - started) * 1000
    segments = len(counted.logs[PARTITION].segments.all)
    counted.close()
    logs = {name: open_dir(name, settings).logs[PARTITION] for name in ("small", "large")}
    rows: list[Row] = []
    rows.append(offsets_in_many(settings, logs["large"]))
    for kind, look in (
        ("offset", by_offset),
        ("first-time offset", by_new_offset),
        ("time", by_time),
        ("bare pread instead of", bare_reads),
    ):
        small, large = (look(logs[name]) for name in ("small", "large"))
        name = f"random {kind} lookups, {LARGE_GB:g} GB in {segments} segments against 10 MB"
        target = "<= 1.5" if kind in ("first-time offset", "time") else ""
        rows.append({"name": name, "value": ratio(large, small), "unit": "x", "target": target})
    for log in logs.values():
        assert isinstance(log.home, LogDir)
        log.home.close()
    rows.append(
        {
            "name": f"opening {LARGE_GB:g} GB after a clean stop: read",
            "value": disk.bytes_read / 1024,
            "unit": f"KB in {opened_ms:.0f} ms",
            "target": "does not read it",
        }
    )
    return rows


def offsets_in_many(settings: LogSettings, large: PartitionLog) -> Row:
    """Against many logs of 10 MB instead of one, which the CPU's caches hold as a whole: what is
    left is what the size of a log costs, not what the amount of data does."""
    for number in range(SMALL_LOGS):
        write_log(f"many/{number}", 10 << 20, settings)
    logs = [open_dir(f"many/{number}", settings).logs[PARTITION] for number in range(SMALL_LOGS)]
    draw = random.Random(4)
    places = [(draw.choice(logs), draw.randrange(logs[0].log_end_offset)) for _ in range(LOOKUPS)]

    def look() -> None:
        for log, offset in places:
            log.read(offset, 1, log.log_end_offset)

    name = f"random offset lookups, {LARGE_GB:g} GB against {SMALL_LOGS} logs of 10 MB"
    value = ratio(by_offset(large), partial(seconds, look))
    for log in logs:
        remove(log)
    return {"name": name, "value": value, "unit": "x", "target": ""}


def by_offset(log: PartitionLog) -> Callable[[], float]:
    offsets = random.Random(2).choices(range(log.log_end_offset), k=LOOKUPS)

    def look() -> None:
        for offset in offsets:
            log.read(offset, 1, log.log_end_offset)

    return partial(seconds, look)


def by_new_offset(log: PartitionLog) -> Callable[[], float]:
    """Other offsets every time: a large log has not seen them yet and reads a header for each,
    from a page that no cache of the CPU holds. A bare `pread` there costs twice what it does in
    10 MB."""
    draw = random.Random(5)
    end = log.log_end_offset

    def look(offsets: list[int]) -> None:
        for offset in offsets:
            log.read(offset, 1, end)

    return lambda: seconds(partial(look, draw.choices(range(end), k=LOOKUPS)))


def bare_reads(log: PartitionLog) -> Callable[[], float]:
    """Nothing but the system call that every new offset needs, at other places every time: what
    the machine itself asks for reading in more memory than its caches hold."""
    draw = random.Random(6)
    files = [(segment.open_file(), segment.size - HEADER.size) for segment in log.segments.all]

    def read(places: list[tuple[File, int]]) -> None:
        for file, position in places:
            file.pread(HEADER.size, position)

    def measure() -> float:
        chosen = draw.choices(files, k=LOOKUPS)
        return seconds(partial(read, [(file, draw.randrange(end)) for file, end in chosen]))

    return measure


def times_in(log: PartitionLog) -> list[int]:
    newest = log.segments.active.max_timestamp
    return random.Random(3).choices(range(NOW, newest), k=LOOKUPS)


def by_time(log: PartitionLog) -> Callable[[], float]:
    times = times_in(log)

    def look() -> None:
        for timestamp in times:
            log.offset_for_timestamp(timestamp)

    return partial(seconds, look)


SCENARIOS: dict[str, Callable[[], list[Row]]] = {
    "append": lambda: [append_ratio(64 << 10, 256 << 20), append_ratio(1 << 20, 512 << 20)],
    "cost": lambda: [
        append_cost(idempotent=False),
        append_cost(idempotent=True),
        *lookup_costs(),
    ],
    "growth": growth,
}


def run(arguments: Sequence[str] = ()) -> list[Row]:
    """All of it, or what `--only` names."""
    parser = ArgumentParser("python -m bench log")
    add_only(parser, SCENARIOS)
    wanted = parser.parse_args(arguments).only
    FOLDER.mkdir(exist_ok=True)
    try:
        return taken({name: SCENARIOS[name] for name in wanted})
    finally:
        for name in ("append", "cost", "small", "large", "many"):
            shutil.rmtree(FOLDER / name, ignore_errors=True)
        (FOLDER / "bare").unlink(missing_ok=True)
