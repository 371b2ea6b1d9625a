"""Which offsets the next micro-batch of a query reads, and in which tasks.

Everything that must be known to run a batch again is in its end offset (see `offsets`), and every
batch begins where the one before ended. On the way is noticed what has become of the topics:
partitions that were added begin at their beginning; records that aged out, logs that were cut off
and topics that were deleted or made again are reported as losses.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.client.cluster import id_of_text
from tidelog.client.fetching import Range
from tidelog.spark.admission import admit
from tidelog.spark.carrying import carry_on
from tidelog.spark.logs import Logs, average_sizes
from tidelog.spark.losses import Losses
from tidelog.spark.offsets import (
    Planned,
    Positions,
    Symbolic,
    each_partition,
    positions_to_json,
    read_offset,
    topics_behind,
    topics_replaced,
    with_offsets,
)
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import count_tasks, cut, spans_of
from tidelog.spark.resolving import check_topics, resolve

IDLE_MS: Final = 100
"""Brokers are asked no more often than this while nothing comes."""
Json = dict[str, Any]


class StreamPlanner:
    def __init__(self, options: SourceOptions, logs: Logs, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._logs = logs
        self._now_ms = now_ms
        self._losses = Losses(is_error=options.fail_on_data_loss)
        self._target: Positions | None = None
        self._seen: Positions | None = None
        self._idle: tuple[Json, int] | None = None
        self._planned_ms: int | None = None

    def initial(self) -> Json:
        """The same whenever it is asked for."""
        return Symbolic(name=self._options.starting.name).to_json()

    def stop_at_what_is_there(self) -> None:
        """From now on, what is written later is not read."""
        self._target = self._logs.latest()

    def seen(self) -> Json | None:
        """The ends of all partitions, when they were last looked at."""
        return None if self._seen is None else {"to": positions_to_json(self._seen)}

    def next(self, start: Json, *, is_limited: bool) -> Json:
        """The end of the next batch; `start` itself if there is nothing to read yet."""
        now_ms = self._now_ms()
        if self._idle is not None:
            idle_start, asked_ms = self._idle
            if idle_start == start and now_ms - asked_ms < IDLE_MS:
                return start
        planned = self._plan(start, is_limited, now_ms)
        if planned is None:
            self._idle = (start, now_ms)
            return start
        self._idle = None
        self._planned_ms = now_ms
        return planned.to_json()

    def tasks(self, start: Json, end: Json) -> list[Range]:
        if start == end:
            return []
        before, planned = read_offset(start), read_offset(end)
        if not isinstance(planned, Planned):
            raise BadValue(f"the checkpoint has a batch that ends at {end}: it was never planned")
        if isinstance(before, Planned) and self._options.fail_on_data_loss:
            _check_adjoining(before, planned)
        return task_ranges(planned)

    def _plan(self, start: Json, is_limited: bool, now_ms: int) -> Planned | None:
        offset = read_offset(start)
        latest = self._seen = self._latest(offset.end if isinstance(offset, Planned) else {})
        if isinstance(offset, Planned):
            begins, begin = carry_on(offset.end, latest, self._logs, self._losses)
            is_same = begin == offset.end
        else:
            check_topics(self._options.subscription, latest)
            begin = resolve(self._options.starting, self._logs, latest, self._losses)
            begins = {}
            # No place stays where it is, the earliest neither: it is written down, with an empty
            # batch if need be, so that what is lost before the first record is read is noticed.
            is_same = False
        ends = dict(each_partition(latest))
        if self._target is not None:
            # Where a place was found behind it, or a log begins there by now, it is reached; the
            # next batch must not take that for a log that was cut off.
            reached = {one: max(ends[one], at) for one, at in each_partition(begin)}
            self._target = with_offsets(latest, reached)
        backlog = {one: max(0, ends[one] - at) for one, at in each_partition(begin)}
        total = sum(backlog.values())
        if is_same and (not total or (is_limited and self._is_too_little(total, now_ms))):
            return None
        return self._admitted(begin, backlog, begins, latest, is_limited)

    def _latest(self, known: Positions) -> Positions:
        """What a broker did not tell of, when it was asked what is there, is asked for again."""
        if self._target is None:
            return self._logs.latest(known)
        is_told_wrong = topics_behind(self._target, known) or topics_replaced(self._target, known)
        if is_told_wrong or not known.keys() <= self._target.keys():
            self._target = self._logs.latest(known)
        return self._target

    def _is_too_little(self, total: int, now_ms: int) -> bool:
        limits = self._options.limits
        if limits.rows_min is None or self._target is not None or self._planned_ms is None:
            return False
        return total < limits.rows_min and now_ms - self._planned_ms < limits.delay_ms_max

    def _admitted(
        self,
        begin: Positions,
        backlog: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        latest: Positions,
        is_limited: bool,
    ) -> Planned:
        limits, splitting = self._options.limits, self._options.splitting
        bytes_max = limits.bytes_max if is_limited else None
        sizes: dict[TopicPartition, float] = {}
        filled = [one for one, rows in backlog.items() if rows]
        if filled and (bytes_max is not None or splitting.is_by_bytes):
            known = {one: begins[one] for one in filled if one in begins}
            missing = [one for one in filled if one not in begins]
            known |= self._logs.earliest(missing) if missing else {}
            sizes = average_sizes(self._logs, latest, known)
            check_sizes(self._options, filled, sizes)
        rows_max = limits.rows_max if is_limited else None
        admitted = admit(backlog, rows_max=rows_max, bytes_max=bytes_max, sizes=sizes)
        starts = dict(each_partition(begin))
        end = with_offsets(begin, {one: starts[one] + rows for one, rows in admitted.items()})
        counts = count_tasks(spans_of(Planned(start=begin, end=end)), splitting, sizes)
        tasks = {one: count for one, count in counts.items() if count > 1}
        return Planned(start=begin, end=end, tasks=tasks)


def check_sizes(
    options: SourceOptions, filled: list[TopicPartition], sizes: Mapping[TopicPartition, float]
) -> None:
    """Limits in bytes need sizes; a number of tasks is reached by rows without them."""
    unknown = [one for one in filled if one not in sizes]
    for option, value in (
        ("maxBytesPerTrigger", options.limits.bytes_max),
        ("maxBytesPerPartition", options.splitting.bytes_max),
    ):
        if unknown and value is not None:
            raise BadValue(
                f"option {option}={value}: the brokers do not tell the size of {unknown[0]}; "
                "use the option by rows"
            )


def task_ranges(planned: Planned) -> list[Range]:
    """The same for the same plan, always."""
    ranges = []
    for one, span in spans_of(planned).items():
        if span.start > span.end:
            raise BadValue(
                f"{one}: the batch was planned from offset {span.start} to {span.end}, backwards"
            )
        topic_id = planned.end[one.topic].topic_id
        ranges += [
            Range(
                topic=one.topic,
                topic_id=None if topic_id is None else id_of_text(topic_id),
                partition=one.partition,
                start=piece.start,
                end=piece.end,
            )
            for piece in cut(span, planned.tasks.get(one, 1))
        ]
    return ranges


def _check_adjoining(before: Planned, planned: Planned) -> None:
    """A batch begins where the last one ended, or records would be lost or read twice."""
    for topic, was in before.end.items():
        for partition, end in was.offsets.items():
            begins = planned.start.get(topic)
            start = None if begins is None else begins.offsets.get(partition)
            if start != end:
                raise BadValue(
                    f"{topic}-{partition}: the checkpoint has a batch that begins at {start} "
                    f"after one that ended at {end}"
                )
