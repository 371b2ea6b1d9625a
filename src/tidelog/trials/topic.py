"""One topic of a name: when it is deleted and made again it is another, with another id."""

from tidelog.cluster.image import NO_TOPIC_ID
from tidelog.trials.oracle import Oracle


class Topic:
    __slots__ = ("oracles", "topic_id")

    def __init__(self, oracles: list[Oracle], topic_id: bytes = NO_TOPIC_ID) -> None:
        """It has an id from when it is made on."""
        self.oracles = oracles
        self.topic_id = topic_id

    def doom(self) -> None:
        """It is to be deleted: nothing is promised of it any more."""
        for oracle in self.oracles:
            oracle.is_deleted = True
