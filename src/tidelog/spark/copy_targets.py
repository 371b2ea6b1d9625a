"""Topics that records are written into: they must be there, and say how large a batch may be."""

from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.cluster import Topic
from tidelog.client.configs import Resource, describe_configs

BATCH_BYTES: Final = 1024 * 1024
_SIZE: Final = "max.message.bytes"


def find_target(client: Client, name: str, *, partition_count: int) -> Topic:
    """`partition_count` is what is proposed for a topic that is not there."""
    try:
        return client.cluster([name]).topic(name)
    except KafkaError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        raise BadValue(
            f"there is no topic {name} to write to: tidelog topics create {name} "
            f"--partitions {partition_count}"
        ) from error


def batch_bytes_max(client: Client, topic: str) -> int:
    """What its brokers take as one batch; of those that do not tell, what they do by default."""
    resource = Resource("topic", topic)
    found = describe_configs(client, [resource])[resource]
    if isinstance(found, KafkaError):
        return BATCH_BYTES
    return next((int(one.value) for one in found if one.name == _SIZE and one.value), BATCH_BYTES)
