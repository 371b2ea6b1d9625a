"""Reading past segments in which compaction has left nothing but a batch without records.

Such a batch says which offsets the segment had (ADR 0003). A reader has no use for it; and
librdkafka gives up on a partition that answers with nothing else, eleven times in a row.
"""

from tidelog.log.partition_log import PartitionLog, Slice
from tidelog.records.batch import HEADER_SIZE, read_header


def past_emptied(log: PartitionLog, found: Slice | None, max_bytes: int, upto: int) -> Slice | None:
    """What was found, or what lies behind it if that has no records."""
    while found is not None and found.size == HEADER_SIZE:
        try:
            header = found.file.pread(HEADER_SIZE, found.position)
        except OSError as error:
            raise log.failed(error) from error
        behind = read_header(header).next_offset
        further = log.read(behind, max_bytes, upto) if behind < upto else None
        if further is None or not further.size:
            break
        found = further
    return found
