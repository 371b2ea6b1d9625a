"""`tidelog configs`: show and change the settings of topics and brokers, in words or Kafka's
flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.properties import read_properties
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.config_target import Flags, Target, parse_config_list, target_of_words
from tidelog.cli.config_view import own_configs, show_configs
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, ActionFirst, Bootstrap, split_assignments
from tidelog.cli.printing import Format, FormatOption, JsonOption, say
from tidelog.client.client import Client
from tidelog.client.configs import Config, Resource, alter_configs, describe_configs

_OTHERS: Final = ("broker-logger", "client", "client-metrics", "group", "ip", "user")
_WITH_DEFAULTS: Final = ("client-defaults", "ip-defaults", "user-defaults")


class Configs(ActionFirst):
    refused: Mapping[str, str] = {
        f"--{name}": "only topics and brokers have settings here: --topic NAME, --broker ID"
        for name in (*_OTHERS, *_WITH_DEFAULTS)
    }


app = typer.Typer(cls=Configs, no_args_is_help=True, rich_markup_mode=None)

_EntityType = Annotated[str | None, typer.Option(metavar="TYPE", help="topics or brokers.")]
_EntityName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A topic's name, or a broker's number.")
]
_EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="What counts for all brokers.")
]
_Topic = Annotated[str | None, typer.Option(metavar="NAME", help="A topic.")]
_Broker = Annotated[str | None, typer.Option(metavar="ID", help="A broker.")]
_BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="The same as --entity-default.")
]
_Whose = Annotated[
    list[str] | None,
    typer.Argument(metavar="WHOSE", help="topic NAME, broker ID, or brokers for all of them."),
]


@app.callback()
def configs() -> None:
    """Show and change the settings of topics and brokers.

    \b
    In words:
      tidelog configs describe topic orders
      tidelog configs describe topic orders --all
      tidelog configs set topic orders retention.ms=86400000 max.message.bytes=2000000
      tidelog configs unset topic orders retention.ms
      tidelog configs set brokers log.retention.ms=604800000
    With the flags of kafka-configs.sh:
      tidelog configs --describe --entity-type topics --entity-name orders --all
      tidelog configs --alter --entity-type topics --entity-name orders \\
        --add-config retention.ms=86400000,cleanup.policy=[compact,delete]
    """


@app.command("describe")
def describe_command(
    whose: _Whose = None,
    entity_type: _EntityType = None,
    entity_name: _EntityName = None,
    entity_default: _EntityDefault = False,
    topic: _Topic = None,
    broker: _Broker = None,
    broker_defaults: _BrokerDefaults = False,
    is_all: Annotated[
        bool, typer.Option("--all", "-a", help="Every setting that counts, and its source.")
    ] = False,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show what was set for a topic or a broker; with --all everything that counts for it.

    \b
    For example:
      tidelog configs describe topic orders
      tidelog configs describe topics
      tidelog configs describe broker 0 --all --json

    In words it answers with a table, to Kafka's flags in Kafka's layout.
    """
    flags = Flags(
        entity_type=entity_type,
        entity_name=entity_name,
        entity_default=entity_default,
        topic=topic,
        broker=broker,
        broker_defaults=broker_defaults,
    )
    target = flags.target()
    usual = Format.text
    if target is None:
        target, usual = _described(whose or []), Format.table
    elif whose:
        raise BadValue(f"{' '.join(whose)}: flags have named the {target.kind} already")
    with admin_client(bootstrap, client_file) as client:
        found = _describe(client, target, is_all=is_all)
    show_configs(found, is_all=is_all, how=Format.json if as_json else how or usual)


@app.command("set")
def set_command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="WHOSE NAME=VALUE...", help="As in: topic orders retention.ms=1000"),
    ],
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Change settings; those not named stay as they are.

    \b
    For example:
      tidelog configs set topic orders retention.ms=86400000 cleanup.policy=compact,delete
      tidelog configs set broker 0 max.connections=2000
      tidelog configs set brokers log.retention.ms=604800000
    """
    target, assignments = target_of_words(words)
    if target.name is not None and "=" in target.name:
        raise BadValue(f"{target.name}: the name of the {target.kind} comes before its settings")
    changes: dict[str, str | None] = dict(split_assignments(assignments, "set"))
    _alter(admin_client(bootstrap, client_file), target.resource(), changes)


@app.command("unset")
def unset_command(
    words: Annotated[
        list[str], typer.Argument(metavar="WHOSE NAME...", help="As in: topic orders retention.ms")
    ],
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Take back settings, so that the default or the brokers' value counts again.

    \b
    For example:
      tidelog configs unset topic orders retention.ms
    """
    target, names = target_of_words(words)
    _alter(admin_client(bootstrap, client_file), target.resource(), dict.fromkeys(names))


@app.command("alter")
def alter_command(
    add_config: Annotated[
        list[str] | None,
        typer.Option(metavar="A=B,C=[D,E]", help="Settings; brackets around values with commas."),
    ] = None,
    add_config_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings from a properties file.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Settings to take back.")
    ] = None,
    entity_type: _EntityType = None,
    entity_name: _EntityName = None,
    entity_default: _EntityDefault = False,
    topic: _Topic = None,
    broker: _Broker = None,
    broker_defaults: _BrokerDefaults = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Change settings with the flags of kafka-configs.sh; `set` and `unset` are shorter.

    \b
    For example:
      tidelog configs alter --entity-type topics --entity-name orders \\
        --add-config retention.ms=86400000,cleanup.policy=[compact,delete]
      tidelog configs alter --topic orders --delete-config retention.ms
    """
    flags = Flags(
        entity_type=entity_type,
        entity_name=entity_name,
        entity_default=entity_default,
        topic=topic,
        broker=broker,
        broker_defaults=broker_defaults,
    )
    target = flags.target()
    if target is None:
        raise BadValue("say whose settings: --topic NAME, --broker ID or --broker-defaults")
    changes: dict[str, str | None] = {}
    if add_config_file is not None:
        changes.update(read_properties(add_config_file))
    for text in add_config or ():
        changes.update(parse_config_list(text))
    for text in delete_config or ():
        changes.update(dict.fromkeys(name.strip() for name in text.split(",")))
    _alter(admin_client(bootstrap, client_file), target.resource(), changes)


def _described(words: list[str]) -> Target:
    """`topics` are all of them; `brokers` too, with what they share."""
    if words in (["topics"], ["brokers"]):
        return Target(kind="topic" if words == ["topics"] else "broker", name=None)
    target, rest = target_of_words(words)
    if target.name is None:
        raise BadValue(f"name the {target.kind}, or say {target.kind}s for all")
    if rest:
        raise BadValue(f"{' '.join(rest)}: more than one {target.kind} cannot be named")
    return target


def _describe(client: Client, target: Target, *, is_all: bool) -> dict[Resource, list[Config]]:
    found: dict[Resource, list[Config]] = {}
    for resource, result in describe_configs(client, _resources(client, target)).items():
        if isinstance(result, KafkaError):
            raise result
        found[resource] = result if is_all else own_configs(resource, result)
    return found


def _resources(client: Client, target: Target) -> list[Resource]:
    if target.name is not None:
        return [target.resource()]
    cluster = client.cluster()
    if target.kind == "topic":
        return [Resource("topic", name) for name in cluster.topics]
    return [
        *(Resource("broker", str(number)) for number in cluster.brokers),
        Resource("broker", ""),
    ]


def _alter(client: Client, resource: Resource, changes: dict[str, str | None]) -> None:
    if not changes:
        raise BadValue("name a setting to change")
    with client:
        _check_deletions(client, resource, [n for n, value in changes.items() if value is None])
        error = alter_configs(client, {resource: changes})[resource]
    if error is not None:
        raise error
    if resource.name:
        say(f"Completed updating config for {resource}.")
    else:
        say(f"Completed updating default config for {resource.kind}s in the cluster.")


def _check_deletions(client: Client, resource: Resource, names: list[str]) -> None:
    """To take back what was never set is most often a misspelt name."""
    if not names:
        return
    described = describe_configs(client, [resource])[resource]
    if isinstance(described, KafkaError):
        raise described
    own = {config.name for config in own_configs(resource, described)}
    missing = [name for name in names if name not in own]
    if missing:
        raise BadValue(
            f"{', '.join(missing)}: not set for {resource}, so there is nothing to unset"
        )
