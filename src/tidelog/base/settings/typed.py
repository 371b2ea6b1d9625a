"""Reading a mapping of settings with the type that the caller needs.

A name that is not in the table, or asked for as a type it does not have, is a bug of the
caller, so it is asserted and never handled.
"""

from collections.abc import Iterator, Mapping

from tidelog.base.settings.kinds import Value


class TypedValues(Mapping[str, Value]):
    """Effective values by name, for one broker or one topic. It does not change."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Value:
        assert name in self._values, f"{name} is not in the table of settings"
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def whole(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), f"{name} is not a whole number"
        assert not isinstance(value, bool), f"{name} is not a whole number"
        return value

    def decimal(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, float), f"{name} is not a decimal number"
        return value

    def flag(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), f"{name} is not true or false"
        return value

    def text(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), f"{name} is not text"
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert isinstance(value, tuple), f"{name} is not a list"
        return value
