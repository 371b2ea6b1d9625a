"""Topics as a stream: what Spark asks of a source, passed on to the planner and to the tasks.

Spark keeps one reader in a process of its own for as long as a query runs, and hands copies that
were never asked anything to the tasks. Only the first needs what asks the brokers, and imports it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark.options import SourceOptions
from tidelog.spark.tasks import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.group_commits import GroupCommits
    from tidelog.spark.logs import BrokerLogs
    from tidelog.spark.stream_planning import StreamPlanner


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ends_with_what_is_there = False

    @cached_property
    def _logs(self) -> "BrokerLogs":
        from tidelog.spark.logs import BrokerLogs

        return BrokerLogs(self._options.connecting, self._options.subscription)

    @cached_property
    def _planner(self) -> "StreamPlanner":
        from tidelog.client.sockets import now_ms
        from tidelog.spark.stream_planning import StreamPlanner

        return StreamPlanner(self._options, self._logs, now_ms)

    @cached_property
    def _commits(self) -> "GroupCommits":
        from tidelog.client.sockets import now_ms
        from tidelog.spark.group_commits import GroupCommits

        return GroupCommits(self._options, now_ms, is_patient=self._ends_with_what_is_there)

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # It is the end of a batch that is done, and the last one's is told nowhere else (trap 6).
        self._commits.reached(start)
        return self._planner.next(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit at a time, and hands back the one it was given; all that were set
        are looked after by the planner."""
        limits = self._options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.rows_min is not None:
            return ReadMinRows(limits.rows_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._planner.seen()

    def prepareForTriggerAvailableNow(self) -> None:
        # Before anything is committed: it comes first.
        self._ends_with_what_is_there = True
        self._planner.stop_at_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [RangePartition(wanted) for wanted in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self._commits.reached(end)

    def stop(self) -> None:
        self._logs.close()
        self._commits.close()
