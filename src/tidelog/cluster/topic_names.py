"""Which names a new topic may have, as Kafka decides it.

Names become folder names and, with dots turned into underscores, names of metrics; so two names
that differ in nothing else cannot both be topics.
"""

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import is_legal_topic
from tidelog.cluster.image import Image

_RESERVED = "__cluster_metadata"
_LENGTH_MAX = 249


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for what can never be a topic."""
    if is_legal_topic(name):
        return
    if not name:
        why = "a topic's name must not be empty"
    elif name in (".", ".."):
        why = f"a topic's name cannot be '{name}'"
    elif len(name) > _LENGTH_MAX:
        why = f"a topic's name has at most {_LENGTH_MAX} characters, this one has {len(name)}"
    else:
        why = f"the topic name {name!r} has others than letters, digits, '.', '_' and '-'"
    raise KafkaError(ErrorCode.invalid_topic_exception, why)


class NewNames:
    """The names that are taken, while one request is planned."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._taken: dict[str, str] = {}
        for name in (*image.topics, *image.deleting, *image.unreadable):
            self._taken[_without_dots(name)] = name

    def take(self, name: str) -> None:
        """Checks a name, and counts it as taken from now on."""
        check_name(name)
        if name == _RESERVED:
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{name} is kept for the brokers themselves"
            )
        self._check_is_new(name)
        other = self._taken.setdefault(_without_dots(name), name)
        if other != name:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"the topic {name} collides with {other}: they differ only in '.' and '_'",
            )

    def _check_is_new(self, name: str) -> None:
        if name in self._image.topics:
            why = f"the topic {name} exists already"
        elif name in self._image.deleting:
            why = f"the topic {name} is still being deleted"
        elif name in self._image.unreadable:
            why = f"the topic {name} exists, but cannot be read: {self._image.unreadable[name]}"
        else:
            return
        raise KafkaError(ErrorCode.topic_already_exists, why)


def _without_dots(name: str) -> str:
    return name.replace(".", "_")
