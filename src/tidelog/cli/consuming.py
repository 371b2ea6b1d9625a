"""Records on their way from a topic to the standard output, through librdkafka.

Partitions are assigned, or shared out by a group; then what was printed is committed, and so the
next one to read for the group goes on behind it. Without `follow`, a partition is finished at the
end it had at the beginning, so that a busy topic ends as well.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
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

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cli.librdkafka import Interrupts, Outage, client_settings, make
from tidelog.cli.printing import counted, remark
from tidelog.cli.record_text import OutputRecord, RecordFormat, json_line
from tidelog.client.client import Client
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

_STEP_SECONDS: Final = 0.1
_BATCH: Final = 1_000
_TIMESTAMP_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    topic: str
    partition: int | None
    start: str | int
    """`earliest`, `latest`, or an offset; for a group, where it has committed nothing."""
    bootstrap: str
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    records_max: int | None
    idle_ms_max: int | None
    follow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What is to be read of a partition."""

    partition: int
    start: int
    end: int


def print_records(
    source: Source, limits: Limits, form: RecordFormat | None, settings: Mapping[str, str]
) -> None:
    """As JSON if there is no other form."""
    line = json_line if form is None else form.line
    spans = _spans(source, settings)
    outage = Outage(source.bootstrap)
    consumer = make(Consumer, _settings(source, outage, settings), "--consumer-property")
    with Interrupts() as interrupts:
        reading = Reading(consumer, outage, interrupts)
        count = 0
        try:
            if source.group is None:
                reading.begin(source.topic, spans, follow=limits.follow)
            else:
                reading.join(source.topic, spans, follow=limits.follow)
            _hint(source, limits)
            for records in reading.batches(limits):
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


def _spans(source: Source, settings: Mapping[str, str]) -> list[Span]:
    committed_only = settings["isolation.level"] == "read_committed"
    with Client(source.bootstrap) as client:
        partitions = _partitions(client, source)
        firsts = list_offsets(client, source.topic, dict.fromkeys(partitions, EARLIEST))
        ends = list_offsets(
            client,
            source.topic,
            dict.fromkeys(partitions, LATEST),
            committed_only=committed_only,
        )
    return [_span(source, index, firsts[index], ends[index]) for index in partitions]


def _partitions(client: Client, source: Source) -> list[int]:
    topic = client.cluster([source.topic]).topic(source.topic)
    known = [partition.index for partition in topic.partitions]
    if source.partition is not None:
        if source.partition not in known:
            raise BadValue(
                f"--partition {source.partition}: {source.topic} has partitions 0 to {known[-1]}"
            )
        return [source.partition]
    if isinstance(source.start, int) and len(known) > 1:
        raise BadValue(
            f"--offset {source.start}: say of which --partition; {source.topic} has {len(known)}"
        )
    return known


def _span(source: Source, partition: int, first: int, end: int) -> Span:
    if isinstance(source.start, str):
        return Span(
            partition=partition, start=first if source.start == "earliest" else end, end=end
        )
    if source.start > end:
        there = f"has offsets {first} to {end - 1}" if end > first else "is empty"
        raise BadValue(
            f"--offset {source.start}: {source.topic}-{partition} {there}, and the next will be "
            f"{end}"
        )
    return Span(partition=partition, start=max(first, source.start), end=end)


def _settings(source: Source, outage: Outage, given: Mapping[str, str]) -> dict[str, Any]:
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


def _hint(source: Source, limits: Limits) -> None:
    if source.start == "latest" and limits.follow and source.group is None:
        remark("Waiting for new records; --from-beginning prints those already there. Ctrl-C ends.")


class Reading:
    def __init__(self, consumer: Any, outage: Outage, interrupts: Interrupts) -> None:
        self._consumer = consumer
        self._call = interrupts.call
        self._outage = outage
        self._ends: dict[int, int | None] = {}
        """The partitions that are not finished, and where each ends, if it does."""
        self._is_waiting = False
        """For partitions that a group has yet to share out."""

    def begin(self, topic: str, spans: list[Span], *, follow: bool) -> None:
        wanted = [span for span in spans if follow or span.start < span.end]
        self._ends = {span.partition: None if follow else span.end for span in wanted}
        places = [TopicPartition(topic, span.partition, span.start) for span in wanted]
        self._call(self._consumer.assign, places)

    def join(self, topic: str, spans: list[Span], *, follow: bool) -> None:
        """Reads what a group gives it. Who follows waits for that as long as it takes."""
        ends = {span.partition: None if follow else span.end for span in spans}
        self._is_waiting = True

        def assigned(_consumer: Any, partitions: list[Any]) -> None:
            self._is_waiting = follow
            for one in partitions:
                if follow or one.partition in ends:
                    self._ends[one.partition] = ends.get(one.partition)

        def revoked(_consumer: Any, partitions: list[Any]) -> None:
            self._is_waiting = True
            for one in partitions:
                self._ends.pop(one.partition, None)

        self._call(self._consumer.subscribe, [topic], on_assign=assigned, on_revoke=revoked)

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

    def batches(self, limits: Limits) -> Iterator[list[OutputRecord]]:
        """Until a limit is reached; never an empty one."""
        left = inf if limits.records_max is None else limits.records_max
        idle_seconds_max = inf if limits.idle_ms_max is None else limits.idle_ms_max / 1000
        heard = monotonic()
        while (self._ends or self._is_waiting) and left > 0:
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
        partition = message.partition()
        error = message.error()
        if error is not None:
            if error.code() == ClientError._PARTITION_EOF:
                if self._ends.get(partition) is not None:
                    del self._ends[partition]
            elif not error.retriable() and error.code() not in _PASSING:
                raise _told(error)
            return False
        self._outage.over()
        end = self._ends.get(partition)
        if end is not None and message.offset() >= end - 1:
            del self._ends[partition]
            return bool(message.offset() < end)
        return end is not None or partition in self._ends


_PASSING: Final = (ClientError._ALL_BROKERS_DOWN, ClientError._TRANSPORT, ClientError._RESOLVE)


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
        timestamp=timestamp,
        timestamp_type=_TIMESTAMP_TYPES.get(kind, ""),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
