"""How a batch says to a consumer group what it has read; `pyspark_tidelog` has it for users.

Spark imports it wherever it looks for formats, long before anybody commits, so that what connects
is imported by the call.

To say how far it has read the rows are asked once more, and they must be the same. Those of a
Spark Connect server need not be: it remembers the last few plans, and what it has forgotten is
planned anew, to where the topic ends by then, also if the rows were persisted.
"""

from typing import TYPE_CHECKING, Any, Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLANNED_ANEW: Final = frozenset(("Read", "SQL"))
"""Relations of a plan whose rows a server does not keep."""


def commit_read(rows: "DataFrame", bootstrap_servers: str, group_id: str) -> None:
    """Commits that all `rows` of a batch read have been taken care of: a read of the group with
    `startingOffsets=committed` begins behind them. They need their topic, partition and offset,
    and at a Spark Connect server they must have been kept by `localCheckpoint()` before any use."""
    if _is_planned_anew(rows):
        raise BadValue(
            "rows at a Spark Connect server may be others by now than those that were taken: keep "
            "them with rows = rows.localCheckpoint() before you use them, and commit these"
        )
    from pyspark.sql import functions as sql

    from tidelog.client.client import Client
    from tidelog.client.offsets import commit_offsets

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


def _is_planned_anew(rows: Any) -> bool:
    if not type(rows).__module__.startswith("pyspark.sql.connect."):
        return False
    return _has_read(rows._plan.plan(rows.sparkSession.client))


def _has_read(message: Any) -> bool:
    """Whether there is a relation in it, at any depth, that a server does not keep."""
    if message.DESCRIPTOR.name in _PLANNED_ANEW:
        return True
    return any(_has_read(part) for part in _parts(message))


def _parts(message: Any) -> list[Any]:
    """The messages in a message of protobuf's."""
    found: list[Any] = []
    for _, value in message.ListFields():
        several = hasattr(value, "__iter__") and not isinstance(value, str | bytes)
        found += [one for one in (value if several else [value]) if hasattr(one, "ListFields")]
    return found
