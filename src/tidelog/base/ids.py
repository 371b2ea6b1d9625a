"""The identities that run through the whole system, as types that cannot be mixed up."""

import re
from dataclasses import dataclass
from typing import NewType

Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

NO_EPOCH = Epoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")


def is_legal_topic(name: str) -> bool:
    """Names become folder names, so this is checked before any path is made of one."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def is_internal(topic: str) -> bool:
    """Whether it is one of those that coordinators keep what they know in."""
    return topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        """The name of a replica's folder in its log dir."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def from_folder(cls, name: str) -> "TopicPartition | None":
        """Reads a folder's name; None if it is not a replica's."""
        match = _FOLDER.fullmatch(name)
        if match is None or not is_legal_topic(match["topic"]):
            return None
        return cls(match["topic"], int(match["partition"]))

    def __str__(self) -> str:
        return self.folder


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of one topic, and of no other that had or will have the same name."""

    topic_id: bytes
    topic: str
    partition: int
