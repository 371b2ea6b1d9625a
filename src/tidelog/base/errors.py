"""Errors that have a number in Kafka's protocol.

There is one class, carrying the code. Whatever may happen to a request is raised as a
`KafkaError` and becomes a number in an answer at one place; what must never happen is an
assertion; a bad setting or file raises `BadValue`, which says what would be right.
"""

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

__all__ = ["BadValue", "ChildDied", "ErrorCode", "KafkaError", "NotStarted", "TaskError"]


_PART: Final = 4_000
"""Characters: a sentence may name what a client sent, and with that become too long to be told."""


class KafkaError(Exception):
    """Something a client is told: a code it knows, and a sentence for people. If only some records
    of a batch are to blame, `records` are their places in it."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[int] = ()) -> None:
        if len(message) > 2 * _PART:
            message = f"{message[:_PART]} ... {message[-_PART:]}"
        super().__init__(f"{code.name.upper()}: {message}")
        self.code = code
        self.message = message
        self.records = records


class BadValue(ValueError):
    """A setting, a file or an argument that cannot be used: its name, and what would be right."""


class TaskError(RuntimeError):
    """A worker's task ended with an error that is not the disk's, or its process died."""


class ChildDied(TaskError):
    """Its process died: because of the task, or for want of memory just then."""


class NotStarted(TaskError):
    """No process could be started for it just now: that says nothing of the task."""
