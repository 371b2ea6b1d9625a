"""What a setting is: its type, how its text is read and written, and what bounds it.

A `Setting` is one row of the table. Its text form is Kafka's: whole numbers without
separators, `true` or `false`, lists separated by commas. A value that does not fit is
refused with the setting's name, the value, and what would be right; the value of a
password is never shown.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from tidelog.base.errors import BadValue

Value = bool | int | float | str | tuple[str, ...] | None
Kind = Literal["boolean", "short", "int", "long", "double", "string", "list", "password", "class"]
Mode = Literal["read-only", "cluster-wide", "per-topic"]

SHORT_MAX: Final = (1 << 15) - 1
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_LARGEST: Final = {"short": SHORT_MAX, "int": INT_MAX, "long": LONG_MAX}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,25}")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,5})?"
)
_BLANKS: Final = " \t\n\v\f\r"
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))
_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A condition, and the words that follow «must be» when it does not hold."""

    allows: Callable[[Value], bool]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker setting that a topic setting falls back to, and what turns its unit into ours."""

    name: str
    factor: int = 1

    def convert(self, value: Value) -> Value:
        """Negative numbers keep their meaning of «no limit» in every unit."""
        if self.factor == 1:
            return value
        assert isinstance(value, int)
        return -1 if value < 0 else value * self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: Value
    doc: str
    bound: Bound | None = None
    mode: Mode = "read-only"
    synonyms: tuple[Synonym, ...] = ()
    no_effect: str = ""
    """Why nothing acts on it, if nothing does."""
    is_promise: bool = False
    """Whether somebody would rely on the effect it has not: then only its default is taken."""

    @property
    def scope(self) -> Literal["broker", "topic"]:
        return "topic" if self.mode == "per-topic" else "broker"

    @property
    def is_secret(self) -> bool:
        return self.kind == "password"

    def parse(self, text: str) -> Value:
        """Reads the text form, as it stands in a file or an AlterConfigs request."""
        value = self._read(text.strip(_TRIMMED))
        self._check_bound(value)
        return value

    def accept(self, value: Value) -> Value:
        """Takes a value that is typed already, or text, and holds it to the same rules."""
        if isinstance(value, str):
            return self.parse(value)
        if value is None and self.default is None:
            return None
        if not self._has_type(value):
            raise self._refusal(value, _WORDS[self.kind])
        if self.kind == "double" and isinstance(value, int):
            value = float(value)
        self._check_bound(value)
        return value

    def format(self, value: Value) -> str:
        """The text form; `parse` reads it back to the same value."""
        match value:
            case None:
                return ""
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

    def _read(self, text: str) -> Value:
        match self.kind:
            case "boolean":
                return self._read_boolean(text)
            case "short" | "int" | "long":
                return self._read_whole(text)
            case "double":
                return self._read_decimal(text)
            case "list":
                return tuple(item.strip(_BLANKS) for item in text.split(",")) if text else ()
            case _:
                return text

    def _read_boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._refusal(text, _WORDS["boolean"])
        return lowered == "true"

    def _read_whole(self, text: str) -> int:
        if _WHOLE.fullmatch(text) is None or not self._has_type(int(text)):
            raise self._refusal(text, _WORDS[self.kind])
        return int(text)

    def _read_decimal(self, text: str) -> float:
        if _DECIMAL.fullmatch(text) is None or not isfinite(float(text)):
            raise self._refusal(text, _WORDS["double"])
        return float(text)

    def _has_type(self, value: object) -> bool:
        match self.kind:
            case "boolean":
                return isinstance(value, bool)
            case "short" | "int" | "long":
                largest = _LARGEST[self.kind]
                return (
                    isinstance(value, int)
                    and not isinstance(value, bool)
                    and -largest - 1 <= value <= largest
                )
            case "double":
                return _is_finite_number(value)
            case "list":
                return _is_list_of_words(value)
            case _:
                return isinstance(value, str)

    def _check_bound(self, value: Value) -> None:
        if self.bound is not None and not self.bound.allows(value):
            raise self._refusal(value, self.bound.words)
        if self.is_promise and value != self.default:
            raise BadValue(f"{self._with(value)}: {self.no_effect}")

    def _refusal(self, value: object, words: str) -> BadValue:
        return BadValue(f"{self._with(value)}: must be {words}")

    def _with(self, value: object) -> str:
        return self.name if self.is_secret else f"{self.name}={_shown(value)}"


_WORDS: Final[dict[Kind, str]] = {
    "boolean": "true or false",
    "short": f"a whole number between {-SHORT_MAX - 1} and {SHORT_MAX}",
    "int": f"a whole number between {-INT_MAX - 1} and {INT_MAX}",
    "long": f"a whole number between {-LONG_MAX - 1} and {LONG_MAX}",
    "double": "a finite number such as 0.5",
    "string": "text",
    "list": "a list of words separated by commas",
    "password": "text",
    "class": "text",
}


def _is_finite_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= DOUBLE_MAX


def _is_list_of_words(value: object) -> bool:
    """Whether it is a list that comes back the same from its text form."""
    if not isinstance(value, tuple) or value == ("",):
        return False
    return all(
        isinstance(item, str) and "," not in item and item == item.strip(_TRIMMED) for item in value
    )


def _shown(value: object) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case tuple():
            text = ",".join(map(str, value))
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def at_least(smallest: float) -> Bound:
    return Bound(allows=lambda value: _number(value) >= smallest, words=f"at least {smallest}")


def between(smallest: float, largest: float) -> Bound:
    return Bound(
        allows=lambda value: smallest <= _number(value) <= largest,
        words=f"between {smallest} and {largest}",
    )


def one_of(*choices: str) -> Bound:
    return Bound(allows=lambda value: value in choices, words=f"one of {', '.join(choices)}")


def some_of(*choices: str) -> Bound:
    """For lists: every item is one of these."""
    return Bound(
        allows=lambda value: isinstance(value, tuple) and set(value) <= set(choices),
        words=f"a comma-separated list of {', '.join(choices)}",
    )


def not_empty() -> Bound:
    return Bound(allows=bool, words="not empty")


def matching(pattern: str, words: str) -> Bound:
    """For text, or for every item of a list."""
    compiled = re.compile(pattern)

    def allows(value: Value) -> bool:
        items = (value,) if isinstance(value, str) else value
        return isinstance(items, tuple) and all(compiled.fullmatch(item) for item in items)

    return Bound(allows=allows, words=words)


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def table(*rows: Iterable[Setting]) -> dict[str, Setting]:
    """Joins parts of the table; a name may stand in it once."""
    settings: dict[str, Setting] = {}
    for part in rows:
        for setting in part:
            assert setting.name not in settings, setting.name
            settings[setting.name] = setting
    return settings
