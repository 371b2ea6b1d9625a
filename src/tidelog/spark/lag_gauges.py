"""The lag of queries as Prometheus gauges, on a port of their own."""

import math
from typing import Any, Final

from tidelog.spark.lag import UNKNOWN_MS, Lag

_LABELS: Final = ("query", "topic", "partition")


class LagGauges:
    def __init__(self, port: int | None) -> None:
        """None: nobody scrapes, and nothing is kept."""
        self._shown: dict[str, set[tuple[str, ...]]] = {}
        self._records: Any = None
        if port is None:
            return
        from prometheus_client import CollectorRegistry, Gauge, start_http_server

        registry = CollectorRegistry()
        self._records = Gauge(
            "tidelog_query_lag_records", "Records not read yet.", _LABELS, registry=registry
        )
        self._seconds = Gauge(
            "tidelog_query_lag_seconds",
            "The age of the first record not read yet; NaN if it is not known.",
            _LABELS,
            registry=registry,
        )
        self.server, _ = start_http_server(port, registry=registry)

    def show(self, query_id: str, name: str, lags: list[Lag]) -> None:
        if self._records is None:
            return
        shown = self._shown.setdefault(query_id, set())
        for lag in lags:
            labels = name, lag.partition.topic, str(lag.partition.partition)
            shown.add(labels)
            self._records.labels(*labels).set(lag.records)
            is_known = lag.time_ms != UNKNOWN_MS
            self._seconds.labels(*labels).set(lag.time_ms / 1000 if is_known else math.nan)

    def forget(self, query_id: str) -> None:
        for labels in self._shown.pop(query_id, ()):
            self._records.remove(*labels)
            self._seconds.remove(*labels)
