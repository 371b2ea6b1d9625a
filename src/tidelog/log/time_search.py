"""Finding the first record of a time or later: which batches may hold it, a step at a time.

The header of a batch says how young its youngest record is, so only batches that claim to hold
such a record are looked into. A claim may be false, and what a client has sent decides how many
there are and how far apart: no step looks at more than a stretch of headers. Between two steps
the log may have been appended to, cut or compacted, so a search remembers offsets, not positions.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from tidelog.base.errors import KafkaError
from tidelog.base.limits import decompressed_bytes_max
from tidelog.base.ports import Buffer, File
from tidelog.log.files import Cold, Warmed
from tidelog.log.log_files import LogFiles
from tidelog.log.segment_reader import DamagedIndex
from tidelog.records.batch import HEADER_SIZE, BatchHeader, read_header
from tidelog.records.time_lookup import Place, first_not_before

STRETCH_BYTES: Final = 256 * 1024

Found = TypeVar("Found")


class Batch(NamedTuple):
    """One whose header says that a record in it is young enough."""

    file: File
    position: int
    size: int
    header: BatchHeader


Search = Generator[Batch | Cold | None, Place | None, Place | None]
"""Yields a batch, to be told what was found in it; a range that has to be read first; or None,
where it may be interrupted."""


def searching(log: LogFiles, timestamp: int) -> Search:
    """Returns offset and timestamp of the first record that is at least that young, or None."""
    yield from learning_times(log)
    offset = log.log_start_offset
    while (offset := max(offset, log.log_start_offset)) < log.log_end_offset:
        step = yield from _looked_up(log, partial(_step, log, timestamp, offset))
        if isinstance(step, int):
            offset = max(step, offset + 1)
            yield None
        else:
            found = yield step
            if found is not None:
                return found
            # Offsets are outside the CRC: one that has rotted must not lead back.
            offset = max(step.header.last_offset, offset) + 1
    return None


def learning_times(log: LogFiles) -> Generator[Cold | None, Place | None, None]:
    """Finds out the largest times of segments that nobody has asked for yet: one in a step."""
    while (yield from _looked_up(log, log.segments.learn_time)):
        yield None


def search_in(log: LogFiles, batch: Batch, data: Buffer, timestamp: int) -> Place | None:
    """What a search wants to be told of a batch; `data` is all of it."""
    try:
        return first_not_before(data, timestamp, log.log_start_offset, limit_of(log))
    except KafkaError:
        return unreadable(log, batch)


def limit_of(log: LogFiles) -> int:
    """What a batch may decompress to."""
    return decompressed_bytes_max(log.settings.max_message_bytes)


def unreadable(log: LogFiles, batch: Batch) -> Place:
    """What it is told of one whose records cannot be read: whoever asks may see for himself, from
    its start on."""
    header = batch.header
    return max(header.base_offset, log.log_start_offset), header.max_timestamp


def _step(log: LogFiles, timestamp: int, offset: int) -> Batch | int:
    """The first batch from an offset on that may hold it, or from where to look on."""
    segments = log.segments
    index = max(segments.with_timestamp(timestamp), segments.at(offset))
    segment = segments.all[index]
    position, size = segment.find_timestamp(timestamp)
    if offset > segment.base_offset:
        start = segment.locate(offset)[0]
        if start > position:
            far = start + STRETCH_BYTES
            position, size = segment.next_with_timestamp(start, timestamp, far)
    if position >= segment.size:
        return segments.end_of(index, log.log_end_offset)
    header = read_header(segment.pread(HEADER_SIZE, position))
    return Batch(segment.open_file(), position, size, header) if size else header.base_offset


def _looked_up(log: LogFiles, lookup: Callable[[], Found]) -> Generator[Cold, Place | None, Found]:
    """Yields what has to be read first; then the lookup is tried again, and is not told of that
    any more."""
    files, warmed = log.home.files, Warmed()
    while True:
        files.warmed = warmed
        try:
            return lookup()
        except Cold as cold:
            found: Cold | DamagedIndex = cold
        except DamagedIndex as damage:
            found = damage
        except OSError as error:
            raise log.failed(error) from error
        finally:
            files.warmed = None
        if isinstance(found, DamagedIndex):
            return log.mended(found, lookup)
        warmed.add((found.path, found.position))
        yield found
