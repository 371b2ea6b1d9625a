"""Offsets committed to a consumer group, so that lag tools see a query like any consumer (P3).

A query goes by its checkpoint and never by the group: what is committed there is for others to
look at, and for batches that begin where the last one ended (`startingOffsets=committed`). So a
commit that does not succeed now is left to the next batch; only a group that others are members
of is refused, as they would be sent to where they do not want to be.
"""

import logging
from typing import Any

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.errors import Unreachable
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.offsets import Planned, each_partition, read_offset

_log = logging.getLogger("tidelog.spark.groups")


class GroupCommits:
    """Of one query."""

    def __init__(self, logs: BrokerLogs, group_id: str | None) -> None:
        self._logs = logs
        self._group_id = group_id
        self._committed: dict[str, Any] | None = None

    def reached(self, offset: dict[str, Any]) -> None:
        """A batch that ends there is done. An idle query says so all the time."""
        if self._group_id is None or offset == self._committed:
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
        else:
            self._committed = offset
