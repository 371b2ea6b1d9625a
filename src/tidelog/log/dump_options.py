"""What may be asked of a dump; the names are those of Kafka's own tool."""

from dataclasses import dataclass

from tidelog.base.limits import DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    print_data_log: bool = False
    """A line a record, with its key and payload, where there would be a line a batch."""
    deep_iteration: bool = False
    """A line a record, without its key and payload."""
    skip_record_metadata: bool = False
    """Of each record, only key and payload."""
    index_sanity_check: bool = False
    """Indexes are compared with their log, not printed, and those that agree are named."""
    verify_index_only: bool = False
    """Indexes are compared with their log and not printed."""
    max_message_size: int = DECOMPRESSED_BYTES_MAX
    """What one batch may decompress to before its records are refused."""
    max_bytes: int | None = None
    """Only the whole batches within the first so many bytes of a log."""

    @property
    def by_record(self) -> bool:
        return self.print_data_log or self.deep_iteration

    @property
    def prints_indexes(self) -> bool:
        return not (self.index_sanity_check or self.verify_index_only)
