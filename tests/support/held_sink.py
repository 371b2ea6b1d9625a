"""Spark's sink of topics with doors in it, at which a test can hold tasks and driver while they
write exactly once.

It is the sink itself, with something said between its steps; see `held_source`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any, Final
from unittest.mock import patch

from support.held_source import doors_here
from tidelog.client.client import Client
from tidelog.client.transacting import OpenTransaction, end
from tidelog.spark import deciding
from tidelog.spark.sink import Messages, TaskWritten, TidelogStreamWriter

PREPARED: Final = "prepared"
"""A task has written all of its rows, and Spark does not know of it yet."""
ALL_PREPARED: Final = "all prepared"
"""The driver is about to decide."""
DECIDED: Final = "decided"
"""Nothing is committed yet."""
HALFWAY: Final = "halfway"
"""What one task has written is committed, and what another has is not."""
CARRIED_OUT: Final = "carried out"
"""All is committed, and Spark does not know of it yet."""


class HeldWriter(TidelogStreamWriter):
    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        written = super().write(iterator)
        doors_here().go_through(PREPARED)
        return written

    def commit(self, messages: Messages, batchId: int) -> None:
        doors_here().go_through(ALL_PREPARED)
        with _held_between_ends():
            super().commit(messages, batchId)
        doors_here().go_through(CARRIED_OUT)


@contextmanager
def _held_between_ends() -> Iterator[None]:
    """Whoever commits what tasks have written goes through doors before the first two of them."""
    doors = doors_here()
    on_the_way = chain([DECIDED, HALFWAY], repeat(None))

    def held_end(client: Client, transaction: OpenTransaction, *, is_commit: bool) -> None:
        if is_commit and _is_of_a_task(transaction):
            door = next(on_the_way)
            if door is not None:
                doors.go_through(door)
        end(client, transaction, is_commit=is_commit)

    with patch.object(deciding, "end", held_end):
        yield


def _is_of_a_task(transaction: OpenTransaction) -> bool:
    return transaction.transactional_id.count("/") > 1
