"""How a batch says to a consumer group what it has read; `pyspark_tidelog` has it for users.

Spark imports it wherever it looks for formats, long before anybody commits, so that what connects
is imported by the call.
"""

from typing import TYPE_CHECKING

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def commit_read(rows: "DataFrame", bootstrap_servers: str, group_id: str) -> None:
    """Commits that all `rows` of a batch read have been taken care of: a read of the group with
    `startingOffsets=committed` begins behind them. They need their topic, partition and offset."""
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
