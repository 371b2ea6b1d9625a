"""What a batch reads: all that is there between two places, as it is now, cut into tasks."""

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


def batch_tasks(options: SourceOptions) -> list[Range]:
    logs = BrokerLogs(options.connecting, options.subscription)
    try:
        return task_ranges(plan_batch(options, logs))
    finally:
        logs.close()


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
    # An offset may be behind a time, and a record may come while places are looked up.
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
