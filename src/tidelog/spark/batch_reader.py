"""Topics as a DataFrame: what is there between two places when the DataFrame is first used.

A DataFrame keeps the tasks of its first action, so it is a snapshot: what is written later is seen
by the next `load()`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.client.fetching import Range
from tidelog.spark.bounds import Offsets
from tidelog.spark.logs import BrokerLogs, Logs, average_sizes
from tidelog.spark.losses import Losses
from tidelog.spark.offsets import Planned, each_partition, with_offsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import count_tasks, spans_of
from tidelog.spark.resolving import check_topics, resolve
from tidelog.spark.stream_planning import check_sizes, task_ranges

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class RangePartition(InputPartition):
    """A task."""

    wanted: Range


class TidelogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        logs = BrokerLogs(self._options.connecting, self._options.subscription)
        try:
            planned = plan_batch(self._options, logs)
        finally:
            logs.close()
        return [RangePartition(wanted) for wanted in task_ranges(planned)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(partition, self._options)


def read_partition(partition: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    """Where nothing was planned Spark makes a partition of its own, which has nothing in it."""
    if not isinstance(partition, RangePartition):
        return iter(())
    # Decoding takes a while to import, and planning does without it.
    from tidelog.spark.reading import read_range

    return read_range(partition.wanted, options)


def plan_batch(options: SourceOptions, logs: Logs) -> Planned:
    latest = logs.latest()
    check_topics(options.subscription, latest)
    losses = Losses(is_error=options.fail_on_data_loss)
    start = resolve(options.starting, logs, latest, losses)
    end = resolve(options.ending, logs, latest, losses)
    are_offsets = isinstance(options.starting, Offsets) and isinstance(options.ending, Offsets)
    starts = dict(each_partition(start))
    for one, offset in each_partition(end):
        if are_offsets and starts[one] > offset:
            raise BadValue(
                f"option endingOffsets: {one} ends at {offset}, before startingOffsets, "
                f"{starts[one]}"
            )
    # Between times there may be nothing, in either order.
    ends = {one: max(starts[one], offset) for one, offset in each_partition(end)}
    planned = Planned(start=start, end=with_offsets(end, ends))
    return _split(planned, options, logs)


def _split(planned: Planned, options: SourceOptions, logs: Logs) -> Planned:
    spans = spans_of(planned)
    filled = [one for one, span in spans.items() if span.rows]
    sizes: dict[TopicPartition, float] = {}
    if filled and options.splitting.is_by_bytes:
        sizes = average_sizes(logs, logs.latest(), logs.earliest(filled))
        check_sizes(options, filled, sizes)
    counts = count_tasks(spans, options.splitting, sizes)
    tasks = {one: count for one, count in counts.items() if count > 1}
    return Planned(start=planned.start, end=planned.end, tasks=tasks)
