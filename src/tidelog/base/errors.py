"""Errors that have a number in Kafka's protocol.

There is one class, carrying the code. Whatever may happen to a request is raised as a
`KafkaError` and becomes a number in an answer at one place; what must never happen is an
assertion; a bad setting or file raises `BadValue`, which says what would be right.
"""

from kio.schema.errors import ErrorCode

__all__ = ["BadValue", "ErrorCode", "KafkaError", "TaskError"]


class KafkaError(Exception):
    """Something a client is told: a code it knows, and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name.upper()}: {message}")
        self.code = code
        self.message = message


class BadValue(ValueError):
    """A setting, a file or an argument that cannot be used: its name, and what would be right."""


class TaskError(RuntimeError):
    """A worker's task ended with an error that is not the disk's, or its process died."""
