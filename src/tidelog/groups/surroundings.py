"""What groups need of the broker they are on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.ports import Clock, Entropy, Loop
from tidelog.base.settings import Settings


class TopicView(Protocol):
    """The topics there are now."""

    def names(self) -> Iterable[str]: ...

    def partition_count(self, name: str) -> int | None:
        """None if there is no such topic."""

    def topic_id(self, name: str) -> bytes | None: ...

    def is_gone(self, name: str) -> bool:
        """Whether it is certain that there is no such topic."""

    def name_of(self, topic_id: bytes) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurroundings:
    clock: Clock
    loop: Loop
    entropy: Entropy
    settings: Callable[[], Settings]
    topics: TopicView
