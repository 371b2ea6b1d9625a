"""`tidelog topics`: make, list, describe, enlarge and delete topics, in words or Kafka's flags."""

from collections.abc import Mapping
from typing import Annotated

import typer

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, ActionFirst, Bootstrap, split_assignments
from tidelog.cli.printing import Format, FormatOption, JsonOption, report, say, say_json, say_table
from tidelog.cli.topic_choice import Choice, choose
from tidelog.cli.topic_view import Filters, show_topics, view_topic
from tidelog.client.client import Client
from tidelog.client.cluster import Topic
from tidelog.client.configs import Config, Resource, describe_configs
from tidelog.client.topics import (
    USE_DEFAULT,
    MorePartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)


class Topics(ActionFirst):
    refused: Mapping[str, str] = {
        "alter --config": "settings are changed with `tidelog configs set topic NAME A=B`",
        "--delete-config": "settings are taken back with `tidelog configs unset topic NAME A`",
        "--partition-size-limit-per-response": "answers are not cut here: leave it out",
    }


app = typer.Typer(cls=Topics, no_args_is_help=True, rich_markup_mode=None)

_Names = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="By name.")]
_Expression = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="The same; also a regular expression."),
]
_NewName = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The same.")]
_Assignment = Annotated[
    str | None,
    typer.Option(
        metavar="0:1,1:2",
        help="The brokers of each partition: colons between brokers, commas between partitions.",
    ),
]
_IfExists = Annotated[
    bool, typer.Option("--if-exists", help="No error where there is no such topic.")
]
_ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Leave out the topics brokers use themselves.")
]


_UnderReplicated = Annotated[
    bool,
    typer.Option(
        "--under-replicated-partitions", help="Partitions with a replica that is not in sync."
    ),
]
_Unavailable = Annotated[
    bool, typer.Option("--unavailable-partitions", help="Partitions nobody leads.")
]
_UnderMinIsr = Annotated[
    bool,
    typer.Option(
        "--under-min-isr-partitions",
        help="Partitions with fewer replicas in sync than min.insync.replicas.",
    ),
]
_AtMinIsr = Annotated[
    bool, typer.Option("--at-min-isr-partitions", help="Partitions with just as many.")
]
_Overrides = Annotated[
    bool, typer.Option("--topics-with-overrides", help="Topics with settings of their own.")
]


@app.callback()
def topics() -> None:
    """Make, list, describe, enlarge and delete topics.

    \b
    In words:
      tidelog topics create orders --partitions 3 --config retention.ms=86400000
      tidelog topics list
      tidelog topics describe orders
      tidelog topics alter orders --partitions 6
      tidelog topics delete orders
    With the flags of kafka-topics.sh:
      tidelog topics --bootstrap-server 127.0.0.1:9092 --create --topic orders --partitions 3
      tidelog topics --describe --under-replicated-partitions

    `tidelog topics create --help` explains the options of `create`, and so on.
    """


@app.command("list")
def list_command(
    names: _Names = None,
    topic: _Expression = None,
    exclude_internal: _ExcludeInternal = False,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Print the names of all topics, or of some.

    \b
    For example:
      tidelog topics list
      tidelog topics list --topic 'orders.*' --format table
    """
    choice = Choice(names=names or [], expression=topic, with_internal=not exclude_internal)
    with admin_client(bootstrap, client_file) as client:
        found = choose(client.cluster(), choice, may_miss=True)
    if as_json or how is Format.json:
        say_json([topic.name for topic in found])
    elif how is Format.table:
        rows = [(topic.name, len(topic.partitions), topic.replication_factor) for topic in found]
        say_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows)
    else:
        for one in found:
            say(one.name)


@app.command("create")
def create_command(
    names: _Names = None,
    topic: _NewName = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="[default: num.partitions]"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=32_767, help="[default: default.replication.factor]"),
    ] = None,
    replica_assignment: _Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="No error where the topic is there.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Make topics.

    \b
    For example:
      tidelog topics create orders --partitions 3
      tidelog topics create users --config cleanup.policy=compact --config segment.ms=3600000
      tidelog topics create pinned --replica-assignment 0:1,1:2,2:0
    """
    if replica_assignment is not None and (partitions or replication_factor):
        raise BadValue(
            "--replica-assignment says how many partitions and replicas there are: "
            "leave out --partitions and --replication-factor"
        )
    wanted = [
        NewTopic(
            name=name,
            partition_count=partitions or USE_DEFAULT,
            replication_factor=replication_factor or USE_DEFAULT,
            assignment=parse_assignment(replica_assignment) if replica_assignment else (),
            configs=split_assignments(config, "--config"),
        )
        for name in _new_names(names, topic)
    ]
    with admin_client(bootstrap, client_file) as client:
        outcomes = create_topics(client, wanted)
    if if_not_exists:
        there = ErrorCode.topic_already_exists
        outcomes = {n: e for n, e in outcomes.items() if e is None or e.code is not there}
    report(outcomes, "Created topic {}.")


@app.command("describe")
def describe_command(
    names: _Names = None,
    topic: _Expression = None,
    topic_id: Annotated[str | None, typer.Option(metavar="ID", help="By its id.")] = None,
    under_replicated: _UnderReplicated = False,
    unavailable: _Unavailable = False,
    under_min_isr: _UnderMinIsr = False,
    at_min_isr: _AtMinIsr = False,
    overrides: _Overrides = False,
    exclude_internal: _ExcludeInternal = False,
    if_exists: _IfExists = False,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show the leader, replicas and in-sync replicas of every partition.

    \b
    For example:
      tidelog topics describe
      tidelog topics describe orders users --format table
      tidelog topics describe --under-replicated-partitions
    """
    filters = Filters(
        under_replicated=under_replicated,
        unavailable=unavailable,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
        only_overrides=overrides,
    )
    choice = Choice(
        names=names or [],
        expression=topic,
        topic_id=topic_id,
        with_internal=not exclude_internal,
    )
    with admin_client(bootstrap, client_file) as client:
        cluster = client.cluster()
        found = choose(cluster, choice, may_miss=if_exists)
        configs = _configs_of(client, found, filters)
    views = [
        view_topic(t, configs[t.name], filters, cluster.brokers) for t in found if t.name in configs
    ]
    if overrides:
        views = [view for view in views if view.configs]
    show_topics(views, filters, Format.json if as_json else how or Format.text)


@app.command("alter")
def alter_command(
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="How many there are to be."),
    ],
    names: _Names = None,
    topic: _Expression = None,
    replica_assignment: _Assignment = None,
    if_exists: _IfExists = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Add partitions to topics. Settings are changed with `tidelog configs`.

    Records that are there stay where they are; those with the same key may go to another
    partition from now on.

    \b
    For example:
      tidelog topics alter orders --partitions 6
    """
    with admin_client(bootstrap, client_file) as client:
        found = choose(client.cluster(), _some(names, topic), may_miss=if_exists)
        wanted = [_enlarged(topic, partitions, replica_assignment) for topic in found]
        outcomes = create_partitions(client, wanted) if wanted else {}
    report(outcomes, f"Topic {{}} has {partitions} partitions.")


@app.command("delete")
def delete_command(
    names: _Names = None,
    topic: _Expression = None,
    if_exists: _IfExists = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Delete topics, with all their records.

    \b
    For example:
      tidelog topics delete orders
      tidelog topics delete --topic 'test-.*'
    """
    with admin_client(bootstrap, client_file) as client:
        found = choose(client.cluster(), _some(names, topic), may_miss=if_exists)
        outcomes = delete_topics(client, [topic.name for topic in found]) if found else {}
    report(outcomes, "Deleted topic {}.")


def parse_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2`: the first partition is on brokers 0 and 1, the second on 1 and 2."""
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise BadValue(
            f"--replica-assignment {text}: must be brokers' numbers, such as 0:1,1:2 for two "
            "partitions of two replicas"
        ) from None


def _new_names(names: list[str] | None, topic: str | None) -> list[str]:
    found = [*(names or ()), *([topic] if topic is not None else ())]
    if not found:
        raise BadValue("name a topic to create: tidelog topics create NAME")
    return list(dict.fromkeys(found))


def _some(names: list[str] | None, topic: str | None) -> Choice:
    choice = Choice(names=names or [], expression=topic)
    if choice.is_everything:
        raise BadValue("name a topic, or several")
    return choice


def _enlarged(topic: Topic, count: int, assignment: str | None) -> MorePartitions:
    """As in Kafka, an assignment lists the partitions that are there too."""
    new = parse_assignment(assignment)[len(topic.partitions) :] if assignment else None
    return MorePartitions(name=topic.name, partition_count=count, assignment=new)


def _configs_of(client: Client, topics: list[Topic], filters: Filters) -> dict[str, list[Config]]:
    """By topic, where they are needed. A topic that was deleted just now is left out."""
    if not topics or (filters.are_for_partitions and not filters.needs_minimum):
        return {topic.name: [] for topic in topics}
    found = describe_configs(client, [Resource("topic", topic.name) for topic in topics])
    configs: dict[str, list[Config]] = {}
    for resource, result in found.items():
        if not isinstance(result, KafkaError):
            configs[resource.name] = result
        elif result.code is not ErrorCode.unknown_topic_or_partition:
            raise result
    return configs
