"""Planning a change of settings: what was asked for becomes the new content of a config node.

Values are checked together with everything they will stand beside. A setting of a topic that is
wrong is INVALID_CONFIG; one of a broker that is wrong, or cannot change while it runs, is
INVALID_REQUEST, as in Kafka.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.settings import Setting, Settings, find_broker_setting, find_topic_setting
from tidelog.cluster import paths
from tidelog.cluster.effective import effective_broker_settings
from tidelog.cluster.image import Image
from tidelog.cluster.requests import ConfigChange, ConfigOperation
from tidelog.cluster.topic_names import check_name
from tidelog.cluster.topics import check_topic_config, unknown_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConfig:
    """All settings that a topic or a broker will have of its own."""

    change: ConfigChange
    config: dict[str, str]
    path: str
    entity_path: str
    """How the change is announced to the other brokers."""
    topic_id: bytes | None = None
    """Of the topic that it is made for, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPlan:
    """Plans changes against the image; `static` is what the broker's file says, `settings` what
    counts now."""

    image: Image
    static: Settings
    settings: Settings
    broker_id: int

    def alter(self, change: ConfigChange) -> NewConfig:
        return self._topic(change) if change.kind == "topic" else self._broker(change)

    def _topic(self, change: ConfigChange) -> NewConfig:
        if not change.name:
            raise _bad_request("there are no settings for all topics; name one")
        check_name(change.name)
        topic = self.image.topics.get(change.name)
        if topic is None:
            raise unknown_topic(self.image, change.name)
        config = resolve(topic.config, change, find_topic_setting)
        check_topic_config(self.settings, config)
        return NewConfig(
            change=change,
            config=config,
            path=paths.topic_config(change.name),
            entity_path=f"topics/{change.name}",
            topic_id=topic.topic_id,
        )

    def _broker(self, change: ConfigChange) -> NewConfig:
        broker_id = broker_of(change.name, self.broker_id)
        if broker_id is None:
            current = self.image.default_broker_config
        else:
            current = self.image.broker_configs.get(broker_id, {})
        config = resolve(current, change, find_broker_setting)
        self._check_broker(config, is_default=broker_id is None)
        return NewConfig(
            change=change,
            config=config,
            path=paths.broker_config(broker_id),
            entity_path=f"brokers/{paths.entity(broker_id)}",
        )

    def _check_broker(self, config: Mapping[str, str], *, is_default: bool) -> None:
        of_all = {} if is_default else self.image.default_broker_config
        base = effective_broker_settings(self.static, of_all, {})
        try:
            for name in config:
                _check_may_be_stored(find_broker_setting(name))
            base.with_changes(config, cluster_wide=is_default)
        except BadValue as error:
            raise _bad_request(str(error)) from error


def broker_of(name: str, own_id: int) -> int | None:
    """The broker that a resource name is for; None is all of them. Others' are refused, because
    only they can tell whether a value goes with the rest of theirs."""
    if not name:
        return None
    if not name.isascii() or not name.isdigit() or int(name[:20]) != own_id:
        raise _bad_request(f"this is the broker {own_id}; the settings of {name[:20]} are not here")
    return own_id


def resolve(
    current: Mapping[str, str], change: ConfigChange, find: Callable[[str], Setting]
) -> dict[str, str]:
    """The settings after a change."""
    config = {} if change.replace else dict(current)
    for name, (operation, value) in change.changes.items():
        if operation == "delete":
            config.pop(name, None)
        elif value is None:
            if not change.replace:
                raise _bad_request(f"{name} has no value")
        elif operation == "set":
            config[name] = value
        else:
            setting = _list_setting(name, operation, find)
            before = _items(config.get(name, setting.format(setting.default)))
            config[name] = ",".join(_combined(before, operation, _items(value)))
    return config


def _list_setting(name: str, operation: ConfigOperation, find: Callable[[str], Setting]) -> Setting:
    try:
        setting = find(name)
    except BadValue as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    if setting.kind != "list":
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{name} is not a list, so {operation} cannot be used; set it instead",
        )
    return setting


def _combined(before: list[str], operation: ConfigOperation, named: list[str]) -> list[str]:
    if operation == "append":
        return before + [item for item in named if item not in before]
    return [item for item in before if item not in named]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_may_be_stored(setting: Setting) -> None:
    if setting.is_secret:
        raise BadValue(
            f"{setting.name} is a password, which is not kept in the coordinator; set it in the "
            "broker's file"
        )


def _bad_request(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, why)
