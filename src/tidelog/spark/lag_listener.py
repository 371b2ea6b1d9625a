"""Tells how far the streaming queries of a session are behind their topics, as they make progress.

    spark.streams.addListener(LagListener("127.0.0.1:9092"))

Spark calls it after each micro-batch. Brokers are asked at most once in `every_s`; what they say
goes to the standard error, a line for each query and topic with its partitions in it, and with
`metrics_port` to gauges that Prometheus can scrape.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.spark.lag import Lag, longest_ms, measure_lag, total_records
from tidelog.spark.lag_gauges import LagGauges
from tidelog.spark.offsets import read_if_ours

EVERY_S: Final = 1.0
ASK_MS_MAX: Final = 5_000
PARTITIONS_SHOWN: Final = 20
"""In a line; those that are most behind."""

Told = Callable[[str, list[Lag]], None]


def say_lag(query: str, lags: list[Lag]) -> None:
    for topic in sorted({lag.partition.topic for lag in lags}):
        of_topic = [lag for lag in lags if lag.partition.topic == topic]
        behind = describe(of_topic)
        sys.stderr.write(f"{query}: {topic}: {behind}\n")


def describe(lags: list[Lag]) -> str:
    behind = sorted((lag for lag in lags if lag.records), key=lambda lag: -lag.records)
    if not behind:
        return "nothing left to read"
    total = _said(total_records(behind), longest_ms(behind))
    each = [
        f"partition {lag.partition.partition}: {_said(lag.records, lag.time_ms)}"
        for lag in behind[:PARTITIONS_SHOWN]
    ]
    others = len(behind) - len(each)
    more = [f"and {others} more partitions"] if others else []
    return f"{total} behind ({', '.join([*each, *more])})"


def _said(records: int, time_ms: int) -> str:
    age = "unknown time" if time_ms < 0 else f"{time_ms / 1000:.1f} s"
    return f"{records} records and {age}"


class LagListener(StreamingQueryListener):
    def __init__(
        self,
        bootstrap_servers: str,
        *,
        every_s: float = EVERY_S,
        metrics_port: int | None = None,
        tell: Told = say_lag,
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._every_s = every_s
        self._tell = tell
        self._asked_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._gauges = LagGauges(metrics_port)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has been read yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """What was told last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._asked_s.pop(str(event.id), None)
        self._gauges.forget(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query_id, name = str(progress.id), progress.name or str(progress.id)[:8]
        if self._is_due(query_id):
            try:
                lags = self._measure(progress.sources)
            except (KafkaError, Unreachable, BadValue) as error:
                sys.stderr.write(f"{name}: its lag is not known: {error}\n")
                return
            if lags:
                self._gauges.show(query_id, name, lags)
                self._tell(name, lags)

    def _is_due(self, query_id: str) -> bool:
        with self._lock:
            now_s = time.monotonic()
            is_due = now_s - self._asked_s.get(query_id, -self._every_s) >= self._every_s
            if is_due:
                self._asked_s[query_id] = now_s
            return is_due

    def _measure(self, sources: list[Any]) -> list[Lag]:
        """Nothing, if none of the sources is a topic of ours."""
        read: dict[TopicPartition, int] = {}
        for source in sources:
            read.update(read_if_ours(source.endOffset))
        if not read:
            return []
        with Client(self._bootstrap, timeout_ms=ASK_MS_MAX) as client:
            return measure_lag(client, read, int(time.time() * 1000))
