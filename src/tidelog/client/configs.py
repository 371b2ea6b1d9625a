"""The settings of topics and brokers: what they are, where each comes from, and changing them.

A broker's own settings are asked of that broker, those for all brokers (no name) and a topic's
of any. Each resource is changed whole or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.topics import error_of

Kind = Literal["topic", "broker"]
_KINDS: Final[Mapping[Kind, int]] = {"topic": 2, "broker": 4}
_SET, _DELETE = 0, 1
SOURCES: Final[Mapping[int, str]] = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """What has settings: a topic, a broker, or with an empty name all brokers together."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"all {self.kind}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    name: str
    value: str | None
    """None also for what is secret."""
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...]
    """All places it could come from, the one that counts first."""

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


def describe_configs(
    client: Client, resources: list[Resource]
) -> dict[Resource, list[Config] | KafkaError]:
    """All settings of each, sorted by name."""
    found: dict[Resource, list[Config] | KafkaError] = {}
    for broker_id, group in _by_broker(resources).items():
        values = {
            "resources": [
                {**_resource_fields(resource), "configuration_keys": None} for resource in group
            ],
            "include_synonyms": True,
        }
        answer = client.ask(apis.DESCRIBE_CONFIGS, values, broker_id)
        for resource, result in zip(group, answer.results, strict=True):
            error = error_of(result, str(resource))
            found[resource] = error or sorted(map(_config, result.configs), key=lambda c: c.name)
    return found


def alter_configs(
    client: Client,
    changes: Mapping[Resource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> dict[Resource, KafkaError | None]:
    """Sets values; None goes back to what counts without one. The rest stays as it is."""
    outcomes: dict[Resource, KafkaError | None] = {}
    for broker_id, group in _by_broker(list(changes)).items():
        values = {
            "resources": [_altered(resource, changes[resource]) for resource in group],
            "validate_only": validate_only,
        }
        if broker_id is None:
            answer = client.ask_controller(apis.ALTER_CONFIGS, values, _codes)
        else:
            answer = client.ask(apis.ALTER_CONFIGS, values, broker_id)
        for resource, result in zip(group, answer.responses, strict=True):
            outcomes[resource] = error_of(result, str(resource))
    return outcomes


def _by_broker(resources: list[Resource]) -> dict[int | None, list[Resource]]:
    """Whom to ask about what."""
    groups: dict[int | None, list[Resource]] = {}
    for resource in resources:
        is_own = resource.kind == "broker" and resource.name
        groups.setdefault(_number(resource.name) if is_own else None, []).append(resource)
    return groups


def _number(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise KafkaError(ErrorCode.invalid_request, f"broker {name}: must be a broker's number")
    return int(name)


def _resource_fields(resource: Resource) -> Mapping[str, Any]:
    return {"resource_type": _KINDS[resource.kind], "resource_name": resource.name}


def _altered(resource: Resource, changes: Mapping[str, str | None]) -> Mapping[str, Any]:
    configs = [
        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
        for name, value in changes.items()
    ]
    return {**_resource_fields(resource), "configs": configs}


def _config(entry: Any) -> Config:
    return Config(
        name=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        is_sensitive=entry.is_sensitive,
        is_read_only=entry.read_only,
        synonyms=tuple(
            Synonym(name=synonym.name, value=synonym.value, source=_source(synonym.source))
            for synonym in entry.synonyms
        ),
    )


def _source(number: int) -> str:
    return SOURCES.get(number, f"SOURCE_{number}")


def _codes(answer: Any) -> list[ErrorCode]:
    return [response.error_code for response in answer.responses]
