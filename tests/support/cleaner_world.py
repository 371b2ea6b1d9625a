"""A log dir with one compacted log on a simulated disk, and the cleaner of a broker."""

from support.logs import NOW, PARTITION, Simulated, batch, contents
from tidelog.base.log_settings import LogSettings
from tidelog.log.cleaner import Candidate, Cleaner, candidate
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.workers import SimWorkers

MAP_BYTES = 1 << 16


def settings(**changes: object) -> LogSettings:
    values = {
        "segment_bytes": 500,
        "index_interval_bytes": 100,
        "cleanup_compact": True,
        "cleanup_delete": False,
        "min_cleanable_ratio": 0.5,
    }
    return LogSettings(**(values | changes))  # type: ignore[arg-type]


def keyed(number: int, *, at: int = NOW, value: bytes | None = None) -> bytearray:
    return batch(1, key=b"k%d" % (number % 5), value=value or b"v%d" % number, at=at)


def fill(log: PartitionLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        log.append_as_leader(keyed(number), 0, NOW)


def last_values(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {r.key: r.value for item in contents(log) for r in item.records}


class World:
    """One log dir with one compacted log, flushed, and its cleaner."""

    def __init__(self, count: int = 40, **changes: object) -> None:
        self.sim = Simulated(settings(**changes))
        fill(self.log, count)
        self.commit()
        self.logs = Logs([self.sim.log_dir])
        self.cleaner = self.new_cleaner()

    def new_cleaner(self, map_bytes: int = MAP_BYTES) -> Cleaner:
        return Cleaner(self.logs, SimWorkers(self.sim.disk), SimEntropy(), map_bytes)

    @property
    def log(self) -> PartitionLog:
        return self.sim.log

    @property
    def log_dir(self) -> LogDir:
        return self.sim.log_dir

    def commit(self) -> None:
        """Everything is flushed and on all replicas."""
        self.log.flush(NOW)
        self.log_dir.high_watermarks[PARTITION] = self.log.log_end_offset
        self.log.producers.committed_up_to(self.log.log_end_offset)

    def look(self, *, at: int = NOW) -> Candidate | None:
        high_watermark = self.log_dir.high_watermarks[PARTITION]
        return candidate(
            self.log, self.log_dir.cleaner_offsets.get(PARTITION, 0), high_watermark, at
        )

    def names(self, ending: str) -> list[str]:
        return [name for name in self.sim.disk.list(self.log.folder) if name.endswith(ending)]
