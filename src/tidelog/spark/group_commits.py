"""Offsets committed to a consumer group, so that lag tools see a query like any consumer (P3).

A query goes by its checkpoint and never by the group: what is committed there is for others to
look at, and for batches that begin where the last one ended (`startingOffsets=committed`). So a
commit that does not succeed now is left to a later batch, and none is held up by it for long. Only
a group that others are members of is refused: they would be sent to where they do not want to be.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.errors import Unreachable
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.offsets import Planned, each_partition, read_offset
from tidelog.spark.options import SourceOptions

PATIENCE_MS: Final = 1_000
PAUSE_MS: Final = 10_000

_log = logging.getLogger("tidelog.spark.groups")


class GroupCommits:
    """Of one query. One that ends with what is there waits for an answer as long as anybody, and
    lets no batch pass: nobody commits its last one later."""

    def __init__(
        self, options: SourceOptions, now_ms: Callable[[], int], *, is_patient: bool
    ) -> None:
        connecting = options.connecting
        if not is_patient:
            timeout_ms = min(PATIENCE_MS, connecting.timeout_ms)
            connecting = replace(connecting, timeout_ms=timeout_ms)
        self._logs = BrokerLogs(connecting, options.subscription)
        self._group_id = options.group_id
        self._now_ms = now_ms
        self._pause_ms = 0 if is_patient else PAUSE_MS
        self._committed: dict[str, Any] | None = None
        self._failed_ms: int | None = None

    def close(self) -> None:
        self._logs.close()

    def reached(self, offset: dict[str, Any]) -> None:
        """A batch that ends there is done. An idle query says so all the time."""
        if self._group_id is None or offset == self._committed or self._has_just_failed:
            return
        planned = read_offset(offset)
        if not isinstance(planned, Planned):
            return
        try:
            self._logs.commit(self._group_id, dict(each_partition(planned.end)))
        except (Unreachable, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.unknown_member_id:
                raise BadValue(f"option kafka.group.id: {error.message}") from error
            _log.warning("offsets of group %s were not committed: %s", self._group_id, error)
            self._failed_ms = self._now_ms()
        else:
            self._committed = offset

    @property
    def _has_just_failed(self) -> bool:
        return self._failed_ms is not None and self._now_ms() < self._failed_ms + self._pause_ms
