"""Topics by regular expression, matched in time that grows with the text and with nothing else.

Members of the newer protocol may leave it to the broker to find the topics that match. An engine
that backtracks, as Python's own does, can be made to run for ever by an expression of a few
characters; RE2, whose syntax Kafka has here, cannot. It is imported by the first expression.
"""

from collections.abc import Iterable
from typing import Protocol

from tidelog.base.errors import ErrorCode, KafkaError


class _Compiled(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def check_pattern(pattern: str, bytes_max: int) -> None:
    """Raises if it is none, or longer than this."""
    _compile(pattern)
    if len(pattern.encode()) > bytes_max:
        raise KafkaError(
            ErrorCode.invalid_regular_expression, f"a regular expression of over {bytes_max} bytes"
        )


def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match as a whole, sorted."""
    compiled = _compile(pattern)
    return tuple(sorted(name for name in names if compiled.fullmatch(name) is not None))


def _compile(pattern: str) -> _Compiled:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled: _Compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0]
        told = why.decode(errors="replace") if isinstance(why, bytes) else error
        raise KafkaError(
            ErrorCode.invalid_regular_expression, f"{pattern!r} is no regular expression: {told}"
        ) from error
    return compiled
