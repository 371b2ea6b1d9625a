"""Records on their way from topics to the standard output, through librdkafka.

Partitions are assigned, or shared out by a group; then what was printed is committed, and so the
next one to read for the group goes on behind it. Without `follow`, a partition is finished at the
end it had at the beginning, so that a busy topic ends as well. Where topics are given by a pattern
they are looked for again and again, and one that is new is read from its first record on.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from operator import methodcaller
from time import monotonic
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cli.librdkafka import Interrupts, Outage, client_settings, make
from tidelog.cli.printing import complain, counted, remark
from tidelog.cli.record_lines import Header
from tidelog.cli.record_spans import (
    Place,
    Source,
    Spans,
    find_end,
    find_leaderless,
    find_new_spans,
    find_spans,
)
from tidelog.cli.record_text import OutputRecord
from tidelog.client.client import TIMEOUT_MS
from tidelog.client.errors import Unreachable

_STEP_SECONDS: Final = 0.1
_BATCH: Final = 1_000
_LOOK_MS: Final = 5_000
_LOOK_AGAIN_MS: Final = 2_000
_LOOK_PATIENCE_MS: Final = 2_000
Settings = Mapping[str, str]
_TIMESTAMP_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    records_max: int | None
    idle_ms_max: int | None
    follow: bool


def print_records(
    source: Source, limits: Limits, line: Callable[[OutputRecord], bytes], settings: Settings
) -> None:
    spans = find_spans(source, settings, _patience_ms(limits))
    outage = Outage(source.bootstrap)
    consumer = make(Consumer, _settings(source, outage, settings), "--consumer-property")
    with Interrupts() as interrupts:
        reading = Reading(consumer, outage, interrupts, source, settings)
        looking = Looking(source, settings, reading, may_grow=_may_grow(source, limits))
        count = 0
        try:
            reading.begin(spans, follow=limits.follow)
            _hint(source, limits)
            for records in reading.batches(limits, looking):
                sys.stdout.buffer.writelines(map(line, records))
                sys.stdout.buffer.flush()
                count += len(records)
                if source.group is not None:
                    reading.commit_soon(records)
        except KeyboardInterrupt:
            remark(f"\n{counted(count)}")
            raise
        else:
            remark(counted(count))
        finally:
            reading.close()


def _patience_ms(limits: Limits) -> float:
    """How long a partition may be without a leader. Who wants what is there now wants an answer."""
    longest = inf if limits.follow else TIMEOUT_MS
    return longest if limits.idle_ms_max is None else min(longest, limits.idle_ms_max)


def _settings(source: Source, outage: Outage, given: Settings) -> dict[str, Any]:
    """Records that were deleted before they were read are passed over."""
    usual = {
        "group.id": "tidelog-consume",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
    }
    if source.group is not None:
        usual |= {
            "group.id": source.group,
            "enable.auto.commit": "true",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": str(source.start),
        }
    return client_settings(source.bootstrap, outage, {**usual, **given})


def _may_grow(source: Source, limits: Limits) -> bool:
    """Whether there may be more partitions to read than there are now."""
    return limits.follow and source.partition is None and isinstance(source.start, str)


def _hint(source: Source, limits: Limits) -> None:
    if source.start == "latest" and limits.follow and source.group is None:
        remark("Waiting for new records; --from-beginning prints those already there. Ctrl-C ends.")


class Reading:
    def __init__(
        self,
        consumer: Any,
        outage: Outage,
        interrupts: Interrupts,
        source: Source,
        settings: Settings,
    ) -> None:
        self._consumer = consumer
        self._source = source
        self._settings = settings
        self._call = interrupts.call
        self._outage = outage
        self._is_shared = source.group is not None
        """A group says which partitions are read here."""
        self.spans: Spans = {}
        self._ends: dict[Place, int | None] = {}
        """The partitions that are not finished, and where each ends, if it does."""
        self._is_waiting = False
        """For partitions that a group has yet to share out."""
        is_named = isinstance(source.topic, str)
        self._passing = _PASSING if is_named else (*_PASSING, *_DELETED)

    def begin(self, spans: Spans, *, follow: bool) -> None:
        self.spans = spans
        if self._is_shared:
            self._join(follow=follow)
            return
        wanted = {place: span for place, span in spans.items() if follow or span.start < span.end}
        self._ends = {place: None if follow else span.end for place, span in wanted.items()}
        places = [TopicPartition(*one, span.start) for one, span in wanted.items()]
        self._call(self._consumer.assign, places)

    def _join(self, *, follow: bool) -> None:
        """Reads what a group gives it. Who follows waits for that as long as it takes."""
        topics = list(dict.fromkeys(topic for topic, _ in self.spans))
        self._is_waiting = bool(topics)

        def assigned(_consumer: Any, partitions: list[Any]) -> None:
            self._is_waiting = follow
            for one in ((one.topic, one.partition) for one in partitions):
                if follow or one in self.spans:
                    self._ends[one] = None if follow else self.spans[one].end

        def revoked(_consumer: Any, partitions: list[Any]) -> None:
            self._is_waiting = True
            for one in ((one.topic, one.partition) for one in partitions):
                self._ends.pop(one, None)

        if topics:
            self._call(self._consumer.subscribe, topics, on_assign=assigned, on_revoke=revoked)

    def follow_also(self, spans: Spans) -> None:
        """Topics came, or went."""
        before, self.spans = self.spans, spans
        if self._is_shared:
            if {topic for topic, _ in before} != {topic for topic, _ in spans}:
                self._join(follow=True)
            return
        gone = [TopicPartition(*one) for one in before if one not in spans]
        new = [TopicPartition(*one, spans[one].start) for one in spans if one not in before]
        self._ends = dict.fromkeys(spans)
        if gone:
            self._call(self._consumer.incremental_unassign, gone)
        if new:
            self._call(self._consumer.incremental_assign, new)

    def commit_soon(self, records: list[OutputRecord]) -> None:
        """They are committed from time to time, and when all is over."""
        nexts = {(one.topic, one.partition): one.offset + 1 for one in records}
        places = [TopicPartition(topic, index, at) for (topic, index), at in nexts.items()]
        try:
            self._call(self._consumer.store_offsets, offsets=places)
        except KafkaException as error:
            # Another member has the partition by now, and prints them again.
            if error.args[0].code() != ClientError._STATE:
                raise _told(error.args[0]) from error

    @property
    def unfinished(self) -> Collection[Place]:
        return self._ends.keys()

    def batches(self, limits: Limits, looking: "Looking") -> Iterator[list[OutputRecord]]:
        """Until a limit is reached; never an empty one."""
        left = inf if limits.records_max is None else limits.records_max
        idle_seconds_max = inf if limits.idle_ms_max is None else limits.idle_ms_max / 1000
        heard = monotonic()
        while (self._ends or self._is_waiting or looking.may_grow) and left > 0:
            looking.look()
            records = self._poll(int(min(left, _BATCH)))
            if records:
                yield records
                heard = monotonic()
                left -= len(records)
            elif monotonic() - heard > idle_seconds_max:
                return

    def close(self) -> None:
        self._call(self._consumer.close)

    def _poll(self, count: int) -> list[OutputRecord]:
        """Waits a little for the first, so that Ctrl-C is heard, and not for the others."""
        first = self._call(self._consumer.poll, _STEP_SECONDS)
        if first is None:
            return []
        rest = self._call(self._consumer.consume, count - 1, 0) if count > 1 else []
        return [_record(message) for message in (first, *rest) if self._is_record(message)]

    def _is_record(self, message: Any) -> bool:
        """Keeps account of what is finished."""
        partition = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == ClientError._PARTITION_EOF:
                self._came_to_end(partition, message.offset())
            elif not error.retriable() and error.code() not in self._passing:
                raise _told(error)
            return False
        self._outage.over()
        end = self._ends.get(partition)
        if end is not None and message.offset() >= end - 1:
            del self._ends[partition]
            return bool(message.offset() < end)
        return end is not None or partition in self._ends

    def _came_to_end(self, place: Place, offset: int) -> None:
        """A leader that is new may not know yet that what lies behind is committed, too. Before
        that counts as the end it is asked, and says so only when it knows."""
        end = self._ends.get(place)
        if end is None:
            return
        if offset < end:
            end = self._ends[place] = min(end, find_end(self._source, place, self._settings))
        if offset >= end:
            del self._ends[place]


class Looking:
    """For partitions that came or went, and for those that nobody leads any more, from time to
    time. librdkafka waits for a leader without a word."""

    def __init__(
        self, source: Source, settings: Settings, reading: Reading, *, may_grow: bool
    ) -> None:
        self.may_grow = may_grow
        self._source = source
        self._settings = settings
        self._reading = reading
        self._seconds = int(settings.get("metadata.max.age.ms", _LOOK_MS)) / 1000
        self._due = monotonic() + self._seconds
        self._leaderless: frozenset[Place] = frozenset()
        self._told: frozenset[Place] = frozenset()

    def look(self) -> None:
        if monotonic() < self._due:
            return
        self._due = monotonic() + self._seconds
        try:
            self._look_for_leaders()
            if self.may_grow:
                self._look_for_partitions()
        except (Unreachable, KafkaError):
            # librdkafka tells of brokers that are away; what is missing is looked for again.
            return

    def _look_for_leaders(self) -> None:
        """An election takes a moment: only what has no leader twice in a row is told."""
        found = find_leaderless(self._source, _LOOK_PATIENCE_MS)
        leaderless = found.intersection(self._reading.unfinished)
        for topic, partition in sorted(leaderless & self._leaderless - self._told):
            waiting = "waiting for a leader (Ctrl-C ends)"
            complain(f"{topic}: nobody leads partition {partition}: {waiting}")
        self._told = leaderless & (self._leaderless | self._told)
        self._leaderless = leaderless
        if leaderless - self._told:
            self._due = monotonic() + min(self._seconds, _LOOK_AGAIN_MS / 1000)

    def _look_for_partitions(self) -> None:
        known = self._reading.spans
        found = find_new_spans(self._source, known, self._settings, _LOOK_PATIENCE_MS)
        if found.keys() != known.keys():
            self._reading.follow_also(found)


_PASSING: Final = (ClientError._ALL_BROKERS_DOWN, ClientError._TRANSPORT, ClientError._RESOLVE)
_DELETED: Final = (
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
)


def _told(error: Any) -> KafkaError:
    """A broker's error, or librdkafka's own, which have no code in the protocol."""
    codes = {code.value: code for code in ErrorCode}
    return KafkaError(codes.get(error.code(), ErrorCode.unknown_server_error), error.str())


def _record(message: Any) -> OutputRecord:
    kind, timestamp = message.timestamp()
    return OutputRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        leader_epoch=message.leader_epoch(),
        timestamp=timestamp,
        timestamp_type=_TIMESTAMP_TYPES.get(kind, ""),
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
    )


_headers_of: Final = methodcaller("headers")


def _headers(message: Any) -> tuple[Header, ...]:
    """confluent-kafka cannot tell of a name that is no text; the rest of the record is good. It
    then returns something and leaves an error behind. Called plainly, that is noticed now or
    somewhere later, as CPython has made the call quicker or not; here always at once."""
    try:
        return tuple(_headers_of(message) or ())
    except SystemError:
        where = f"{message.topic()}-{message.partition()} at {message.offset()}"
        complain(f"{where}: a header's name is no text in UTF-8: its headers are left out")
        return ()
