"""The settings of one broker: what its file says, what was changed since, and the defaults.

A `Settings` never changes; `with_changes` makes another. A change is stored for one broker or
for the whole cluster, and the more particular one counts: broker, cluster, file, default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.base.errors import BadValue
from tidelog.base.properties import parse_properties
from tidelog.base.settings.broker import BROKER, find_broker_setting
from tidelog.base.settings.checks import check_broker
from tidelog.base.settings.kinds import Setting, Value
from tidelog.base.settings.typed import TypedValues

Source = Literal[
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
]
_Layers = Mapping[Source, Mapping[str, Value]]

_DEFAULTS: Final = {name: setting.default for name, setting in BROKER.items()}
_MOST_PARTICULAR_FIRST: Final[tuple[Source, ...]] = (
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One place where a value stands: under which name, and who put it there."""

    name: str
    value: Value
    source: Source


class Settings(TypedValues):
    """Every broker setting with its value. Made by `of`, `from_properties` or `with_changes`."""

    __slots__ = ("_layers",)

    def __init__(self, layers: _Layers) -> None:
        values: dict[str, Value] = {}
        for source in reversed(_MOST_PARTICULAR_FIRST):
            values |= layers.get(source, {})
        super().__init__(values)
        self._layers = layers
        check_broker(self)

    @classmethod
    def from_properties(cls, text: str) -> "Settings":
        """Reads a `server.properties`."""
        return cls.of(parse_properties(text))

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Settings":
        """Takes values as text or with their type; all others have their defaults."""
        static = {
            name: find_broker_setting(name).accept(value)
            for name, value in values.items()
            if value is not None
        }
        _check_one_way_between_brokers(static)
        return cls({"STATIC_BROKER_CONFIG": static, "DEFAULT_CONFIG": _DEFAULTS})

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The folders that hold the log, in the order they are written."""
        text = self["log.dirs"]
        dirs = self.text("log.dir") if text is None else str(text)
        return tuple(item.strip() for item in dirs.split(",") if item.strip())

    def whole_for_listener(self, listener: str, name: str) -> int:
        """The value for one listener, which may have its own."""
        own = f"listener.name.{listener.lower()}.{name}"
        return self.whole(own if own in self else name)

    def source(self, name: str) -> Source:
        """Who set the value that counts."""
        return next(source for source in _MOST_PARTICULAR_FIRST if name in self._layer(source))

    def entries(self, names: Iterable[str]) -> tuple[Entry, ...]:
        """All values that stand under these names, the one that counts first."""
        in_order = tuple(names)
        return tuple(
            Entry(name=name, value=value, source=source)
            for source in _MOST_PARTICULAR_FIRST
            for name in in_order
            if (value := self._layer(source).get(name)) is not None
        )

    def with_changes(
        self, changes: Mapping[str, Value], *, cluster_wide: bool = False
    ) -> "Settings":
        """The same with some values changed while the broker runs; None takes a change back."""
        target: Source = (
            "DYNAMIC_DEFAULT_BROKER_CONFIG" if cluster_wide else "DYNAMIC_BROKER_CONFIG"
        )
        changed = dict(self._layer(target))
        for name, value in changes.items():
            setting = find_broker_setting(name)
            _check_may_change(setting)
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = setting.accept(value)
        return Settings({**self._layers, target: changed})

    def _layer(self, source: Source) -> Mapping[str, Value]:
        return self._layers.get(source, {})


def _check_one_way_between_brokers(static: Mapping[str, Value]) -> None:
    if "inter.broker.listener.name" in static and "security.inter.broker.protocol" in static:
        raise BadValue(
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set"
        )


def _check_may_change(setting: Setting) -> None:
    if setting.no_effect:
        raise BadValue(f"{setting.name} has no effect: {setting.no_effect}")
    if setting.mode == "read-only":
        raise BadValue(f"{setting.name} cannot change while the broker runs; set it in its file")
