"""Whose settings a command is about, said in words (`topic orders`) or in Kafka's flags; and
Kafka's way of writing several settings in one argument, `a=1,b=[2,3]`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import split_assignment
from tidelog.client.configs import Kind, Resource

_KINDS: Final[Mapping[str, Kind]] = {
    "topic": "topic",
    "topics": "topic",
    "broker": "broker",
    "brokers": "broker",
}
_COMMA_OUTSIDE_BRACKETS: Final = re.compile(r",(?=[^\]]*(?:\[|$))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One topic or broker; without a name all of a kind; with an empty one the settings that
    all brokers share."""

    kind: Kind
    name: str | None

    def resource(self) -> Resource:
        if self.name is None:
            raise BadValue(f"name the {self.kind} whose settings are to change")
        return Resource(self.kind, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What kafka-configs.sh has to name a target."""

    entity_type: str | None
    entity_name: str | None
    entity_default: bool
    topic: str | None
    broker: str | None
    broker_defaults: bool

    def target(self) -> Target | None:
        """None if no flag was given."""
        found = [*self._short(), *self._long()]
        if len(found) > 1:
            raise BadValue("name one topic or one broker, not several")
        return found[0] if found else None

    def _short(self) -> list[Target]:
        named: list[tuple[Kind, str | None]] = [("topic", self.topic), ("broker", self.broker)]
        found = [Target(kind=kind, name=name) for kind, name in named if name is not None]
        return [*found, Target(kind="broker", name="")] if self.broker_defaults else found

    def _long(self) -> list[Target]:
        if self.entity_type is None:
            if self.entity_name is not None or self.entity_default:
                raise BadValue("--entity-type is missing: topics or brokers")
            return []
        kind = kind_of(self.entity_type, "--entity-type ")
        if self.entity_default and (kind == "topic" or self.entity_name is not None):
            raise BadValue("--entity-default is for --entity-type brokers, without --entity-name")
        return [Target(kind=kind, name="" if self.entity_default else self.entity_name)]


def kind_of(word: str, where: str = "") -> Kind:
    if word not in _KINDS:
        raise BadValue(f"{where}{word}: only topics and brokers have settings here")
    return _KINDS[word]


def target_of_words(words: list[str]) -> tuple[Target, list[str]]:
    """`topic NAME`, `broker ID`, or `brokers` for those that all share; and the words after."""
    if not words:
        raise BadValue("say whose settings: topic NAME, broker ID, or brokers")
    kind = kind_of(words[0])
    if words[0] == "brokers":
        return Target(kind=kind, name=""), words[1:]
    name = words[1] if len(words) > 1 else None
    return Target(kind=kind, name=name), words[2:]


def parse_config_list(text: str) -> dict[str, str]:
    """`a=1,b=[2,3]`: brackets keep the commas of a value, and are not part of it."""
    configs = {}
    for part in _COMMA_OUTSIDE_BRACKETS.split(text):
        if part.strip():
            name, value = split_assignment(part.strip(), "--add-config")
            configs[name] = value.strip().removeprefix("[").removesuffix("]")
    return configs
