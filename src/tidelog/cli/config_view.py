"""How settings are shown: as kafka-configs.sh does, as a table, or as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from tidelog.cli.printing import Format, say, say_json, say_table
from tidelog.client.configs import Config, Resource

_OWN_SOURCE: Final[Mapping[str, str]] = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
}
Described = Mapping[Resource, Sequence[Config]]


def own_configs(resource: Resource, configs: Sequence[Config]) -> list[Config]:
    """What was set for just this topic or broker, or for all brokers."""
    own = _OWN_SOURCE[resource.kind] if resource.name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return [config for config in configs if config.source == own]


def show_configs(described: Described, *, is_all: bool, how: Format) -> None:
    if how is Format.json:
        say_json([_plain(resource, configs) for resource, configs in described.items()])
    elif how is Format.table:
        _show_table(described, is_all)
    else:
        _show_as_kafka_does(described, is_all)


def _show_as_kafka_does(described: Described, is_all: bool) -> None:
    for resource, configs in described.items():
        if resource.name:
            which = "All" if is_all else "Dynamic"
            say(f"{which} configs for {resource} are:")
        else:
            say(f"Default configs for {resource.kind}s in the cluster are:")
        for config in configs:
            synonyms = ", ".join(f"{s.source}:{s.name}={_text(s.value)}" for s in config.synonyms)
            say(
                f"  {config.name}={_text(config.value)} "
                f"sensitive={str(config.is_sensitive).lower()} synonyms={{{synonyms}}}"
            )


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _show_table(described: Described, is_all: bool) -> None:
    for number, (resource, configs) in enumerate(described.items()):
        if len(described) > 1:
            if number:
                say("")
            say(str(resource))
        if configs:
            rows = [(c.name, _shown(c), c.source) for c in configs]
            say_table(("CONFIG", "VALUE", "SOURCE"), rows)
        else:
            hint = "" if is_all else " (--all shows every setting that counts)"
            say(f"Nothing was set for {resource}.{hint}")


def _shown(config: Config) -> str:
    if config.value is None:
        return "(secret)" if config.is_sensitive else "(none)"
    return config.value or '""'


def _plain(resource: Resource, configs: Sequence[Config]) -> Mapping[str, object]:
    return {
        "type": resource.kind,
        "name": resource.name or None,
        "configs": [asdict(config) for config in configs],
    }
