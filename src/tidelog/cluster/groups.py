"""A long request, done a few items at a time, so that others come in between."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from tidelog.base.errors import KafkaError
from tidelog.cluster.standing import Results

ITEMS_MAX: Final = 100
"""Making so many topics holds the loop for some thirty milliseconds."""

Asked = TypeVar("Asked")
Item = TypeVar("Item")
Work = Callable[[Sequence[Asked], Results[Item]], None]
"""Gets some items, and answers with a result for each."""


class Groups(Generic[Asked, Item]):
    """The items of one request; `done` gets a result for each when all are done."""

    __slots__ = ("_done", "_items", "_later", "_results", "_work")

    def __init__(
        self, items: Sequence[Asked], work: Work[Asked, Item], done: Results[Item]
    ) -> None:
        self._items = items
        self._work = work
        self._done = done
        self._results: list[Item | KafkaError] = []

    def run(self, later: Callable[[Callable[[], None]], None]) -> None:
        """One group after the other; `later` calls in another turn of the loop."""
        self._later = later
        self._begin()

    def _begin(self) -> None:
        first = len(self._results)
        self._work(self._items[first : first + ITEMS_MAX], self._answered)

    def _answered(self, results: list[Item | KafkaError]) -> None:
        self._results += results
        if len(self._results) < len(self._items):
            self._later(self._begin)
        else:
            self._done(self._results)
