"""Where a partition ends, by a client."""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

_SECONDS_MAX: Final = 60.0


def log_end(reader: Consumer, place: TopicPartition) -> int:
    """The high watermark, also where the leader has just changed and the client does not know."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        try:
            return int(reader.get_watermark_offsets(place, timeout=5, cached=False)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
