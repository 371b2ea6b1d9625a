"""Writes DataFrames and streams into topics.

Spark calls `write` once in each task, and `commit` in the driver when all of them are done. At
least once, tasks write their rows, each idempotent by itself, and one that Spark runs again writes
them again. Exactly once, tasks only prepare, each in a transaction of its own, and the driver
decides in `commit`: `deciding` says how.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.base.errors import BadValue
from tidelog.spark.deciding import Deciding
from tidelog.spark.decisions import Decision, Task, run_in_batch
from tidelog.spark.sink_columns import check_columns
from tidelog.spark.sink_options import SinkOptions

Messages = list[WriterCommitMessage | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWritten(WriterCommitMessage):
    """What one task has written and brokers have confirmed."""

    rows: int
    rows_by_partition: dict[tuple[str, int], int]
    query: str | None = None
    run: str | None = None
    task: Task | None = None
    """Its transaction, which waits for a decision, if it has begun one."""


class TidelogWriter(DataSourceArrowWriter):
    """Exactly once, a write is all or nothing; one of a series (`txnAppId`) that was written
    before, by its number (`txnVersion`), is not written again. Numbers must grow: one that was
    passed over is refused."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadValue(
                'mode "overwrite": a topic is a log, to which rows can only be added; '
                'write with .mode("append")'
            )
        check_columns(schema, options.topic)
        self._options = options
        self._run = uuid.uuid4().hex
        self._query, self._number = options.series or (self._run, 0)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        if self._options.is_exactly_once:
            return _prepare(self._options, iterator, (self._query, self._run, self._number))
        return _write(self._options, iterator)

    def commit(self, messages: Messages) -> None:
        in_series = self._options.series is not None
        _settle(
            self._options,
            messages,
            self._number,
            lambda deciding, decision: deciding.commit(decision, in_series=in_series),
        )

    def abort(self, messages: Messages) -> None:
        """Also where no task has come to its end: one that failed may have begun."""
        of = (self._query, self._run)
        _settle(self._options, messages, self._number, Deciding.abort, of)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """In output mode `complete` the whole result is added anew by each batch, as Spark's own
    Kafka sink does it."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        if self._options.is_exactly_once:
            return _prepare(self._options, iterator, _batch_of_task())
        return _write(self._options, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _settle(self._options, messages, batchId, Deciding.commit)

    def abort(self, messages: Messages, batchId: int) -> None:
        _settle(self._options, messages, batchId, Deciding.abort)


def _write(options: SinkOptions, batches: Iterator[Any]) -> TaskWritten:
    # Imported here: the compiled loops are for executors, and a driver starts sooner without.
    from tidelog.spark.task_writing import write_rows

    counts = write_rows(options, batches)
    return TaskWritten(rows=counts.total(), rows_by_partition=dict(counts))


def _prepare(
    options: SinkOptions, batches: Iterator[Any], batch_of_task: tuple[str, str, int]
) -> TaskWritten:
    from tidelog.spark.task_writing import Place, prepare_rows

    context = _context()
    place = Place(*batch_of_task, context.partitionId(), context.attemptNumber())
    counts, transaction = prepare_rows(options, batches, place)
    task = None
    if transaction is not None:
        task = Task(place.number, place.attempt, *transaction.producer)
    return TaskWritten(
        rows=counts.total(),
        rows_by_partition=dict(counts),
        query=place.query,
        run=place.run,
        task=task,
    )


def _batch_of_task() -> tuple[str, str, int]:
    """Query, run in this batch, and batch. The query stays the same over restarts, the run does
    not (trap 7)."""
    context = _context()
    query = context.getLocalProperty("sql.streaming.queryId")
    run = context.getLocalProperty("spark.jobGroup.id")
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None, "a stream's tasks are told its query"
    assert run is not None, "a stream's tasks are told its run"
    assert batch is not None, "a stream's tasks are told their batch"
    return query, run_in_batch(run, int(batch)), int(batch)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _settle(
    options: SinkOptions,
    messages: Messages,
    batch: int,
    settle: Callable[[Deciding, Decision], object],
    of: tuple[str | None, str | None] | None = None,
) -> None:
    """Decides about what tasks have prepared, who say themselves of which query and run they are.
    What was written at least once stays as it is: a log takes nothing back."""
    found = [message for message in messages if isinstance(message, TaskWritten)]
    of = (found[0].query, found[0].run) if found else of
    if not options.is_exactly_once or of is None:
        return
    query, run = of
    assert query is not None, "who prepares says for which query"
    assert run is not None, "who prepares says in which run"
    tasks = tuple(message.task for message in found if message.task is not None)
    sending = options.sending
    with sending.client() as client:
        deciding = Deciding(client, query, sending.delivery_timeout_ms)
        settle(deciding, Decision(batch=batch, run=run, tasks=tasks))
