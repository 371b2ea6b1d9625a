"""Offsets committed to a consumer group, so that lag tools see a query like any consumer (P3).

A query goes by its checkpoint and never by the group: what is committed there is for others to
look at, and for batches that begin where the last one ended (`startingOffsets=committed`). So a
commit that does not succeed now is left to the next batch; only a group that others are members
of is refused, as they would be sent to where they do not want to be.
"""

import logging
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.offsets import commit_offsets
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.offsets import Planned, each_partition, read_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def commit_read(rows: "DataFrame", bootstrap_servers: str, group_id: str) -> None:
    """Commits that all `rows` of a batch read have been taken care of: a read of the group with
    `startingOffsets=committed` begins behind them. They need their topic, partition and offset."""
    from pyspark.sql import functions as sql

    missing = [name for name in ("topic", "partition", "offset") if name not in rows.columns]
    if missing:
        raise BadValue(f"rows without a column {missing[0]}: they do not say what was read")
    ends = rows.groupBy("topic", "partition").agg(sql.max("offset").alias("last")).collect()
    with Client(bootstrap_servers, client_id="tidelog-spark") as client:
        commit_offsets(
            client,
            group_id,
            {TopicPartition(row.topic, row.partition): row.last + 1 for row in ends},
        )
