"""A log file that somebody has shortened under a running broker (F12): what is gone is missed, and
nothing behind it is given in its place."""

import pytest

from support.logs import NOW, Simulated, batch
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import read_header
from tidelog.world.sim.disk import SimFile

READS_MAX = 10_000


@pytest.fixture
def _reads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever would read for ever is stopped."""
    pread, reads = SimFile.pread, 0

    def read(file: SimFile, size: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < READS_MAX, "it reads on and on"
        return pread(file, size, offset)

    monkeypatch.setattr(SimFile, "pread", read)


def shortened(value_bytes: int, kept: float) -> tuple[PartitionLog, int]:
    """A log of some closed segments, and how many batches of the second one are left."""
    sim = Simulated(LogSettings(segment_bytes=40 * (value_bytes + 100)))
    while len(sim.log.segments.all) < 4:
        sim.log.append_as_leader(batch(1, value=b"v" * value_bytes), 0, NOW)
    segment = sim.log.segments.all[1]
    _, size = segment.locate(segment.base_offset)
    sim.disk.open(segment.path(".log"), "write").truncate(int(kept * size))
    return sim.log, int(kept)


@pytest.mark.usefixtures("_reads_end")
@pytest.mark.parametrize("value_bytes", [10, 30_000])
@pytest.mark.parametrize("kept", [0.0, 17.0, 17.2, 17.9])
def test_what_a_file_has_lost_is_missed(value_bytes: int, kept: float) -> None:
    log, left = shortened(value_bytes, kept)
    _, start, end, _ = log.segments.bases
    errors: list[ErrorCode] = []
    for offset in range(start, end):
        try:
            found = log.read(offset, 1, log.log_end_offset)
        except KafkaError as error:
            errors.append(error.code)
            continue
        data = found.file.pread(found.size, found.position)
        # Of a batch whose place was known already, there may be less than was promised.
        assert len(data) < found.size or read_header(data).base_offset == offset
        assert offset < start + left or len(data) < found.size
    assert set(errors) == {ErrorCode.corrupt_message}
