"""The topics that a member of a classic group of consumers subscribes to, as it tells the other
members. The format belongs to the clients; all versions begin with the same fields:

    version (2 bytes), number of topics (4), for each topic its length (2) and its name
"""

from collections.abc import Iterable

from tidelog.base.errors import KafkaError
from tidelog.records.fields import FieldReader

CONSUMER = "consumer"
"""The protocol type of groups whose members read topics."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that any of them names; None if one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = FieldReader(subscription)
            topics.update(reader.text() for _ in range(reader.count()))
    except KafkaError:
        return None
    return frozenset(topics)
