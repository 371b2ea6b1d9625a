"""`tidelog consume`: the records of topics as lines, from where one wants, until one has enough.

All partitions are read, or one, or with `--group` those that the group gives. As
kafka-console-consumer it begins at the end, or where the group is, and waits for what comes;
`--from-beginning` and `--exit` change the one and the other.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import (
    BOOTSTRAP_SERVER,
    Bootstrap,
    OtherFlags,
    Zookeeper,
    client_properties,
    one_of,
)
from tidelog.cli.record_text import Decode, as_it_is, json_line, record_format, skipping

_LEVELS: Final = ("read_committed", "read_uncommitted")


class Style(OtherFlags):
    """The flags of kafka-console-consumer that are properties of its formatter."""

    renamed: Mapping[str, str] = {
        "--key-deserializer": "--property=key.deserializer=",
        "--value-deserializer": "--property=value.deserializer=",
    }
    refused: Mapping[str, str] = {
        "--enable-systest-events": "only Kafka's own tests need it: leave it out",
        "--formatter": "--property says what is printed, --json prints all of a record; `tidelog "
        "groups` and `tidelog transactions` show what is in the topics brokers keep for themselves",
        "--new-consumer": "there is no other: leave it out",
    }


_Topic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Which to read.")]
_TopicFlag = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The same.")]
_Include = Annotated[
    str | None,
    typer.Option(
        "--include",
        "--whitelist",
        metavar="REGEX",
        help="All topics it matches, those made later too.",
    ),
]
_FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", "-f", help="The same as --offset earliest.")
]
_Offset = Annotated[
    str | None,
    typer.Option("--offset", "-o", metavar="WHERE", help="earliest, latest, or a number."),
]
_Partition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one.")
]
_MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", "-n", metavar="N", min=1, help="End after so many.")
]
_Timeout = Annotated[
    int | None,
    typer.Option("--timeout-ms", metavar="MS", min=0, help="End when nothing came for so long."),
]
_Follow = Annotated[
    bool,
    typer.Option("--follow/--exit", "-F/-e", help="Wait for more, or end with what is there now."),
]
_PrintKey = Annotated[bool, typer.Option("--key", "-k", help="Print keys.")]
_PrintTimestamp = Annotated[bool, typer.Option("--timestamp", "-t", help="Print timestamps.")]
_PrintPlace = Annotated[bool, typer.Option("--place", "-P", help="Print partitions and offsets.")]
_PrintHeaders = Annotated[bool, typer.Option("--headers", "-H", help="Print headers.")]
_Json = Annotated[bool, typer.Option("--json", "-j", help="Print a JSON object for each record.")]
_Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="Of kafka-console-consumer, such as print.key=true.",
    ),
]
_PropertiesFile = Annotated[
    Path | None,
    typer.Option("--formatter-config", metavar="FILE", help="Such properties, one a line."),
]
_Skip = Annotated[
    bool,
    typer.Option("--skip-message-on-error", help="Pass over records that cannot be printed."),
]
_Isolation = Annotated[
    str,
    typer.Option(metavar="LEVEL", help="read_committed, or read_uncommitted."),
]
_ConsumerProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--consumer-property",
        "--command-property",
        metavar="NAME=VALUE",
        help="A setting of librdkafka.",
    ),
]
_ConsumerFile = Annotated[
    Path | None,
    typer.Option(
        "--command-config", "--consumer.config", metavar="FILE", help="Such settings, one a line."
    ),
]
_Group = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="NAME", help="Read for it, and commit what was printed."),
]


def consume(
    topic: _Topic = None,
    topic_flag: _TopicFlag = None,
    include: _Include = None,
    from_beginning: _FromBeginning = False,
    offset: _Offset = None,
    partition: _Partition = None,
    max_messages: _MaxMessages = None,
    timeout_ms: _Timeout = None,
    follow: _Follow = True,
    key: _PrintKey = False,
    timestamp: _PrintTimestamp = False,
    place: _PrintPlace = False,
    headers: _PrintHeaders = False,
    as_json: _Json = False,
    properties: _Properties = None,
    properties_file: _PropertiesFile = None,
    skip: _Skip = False,
    isolation_level: _Isolation = "read_uncommitted",
    consumer_properties: _ConsumerProperties = None,
    consumer_file: _ConsumerFile = None,
    group: _Group = None,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    _zookeeper: Zookeeper = None,
) -> None:
    """Print the records of a topic as they come; Ctrl-C ends it.

    \b
    For example:
      tidelog consume orders
      tidelog consume orders --from-beginning --exit
      tidelog consume orders --partition 0 --offset 42 --max-messages 1 --key --timestamp
      tidelog consume orders -f -e --json | jq .value
      tidelog consume orders --group billing --from-beginning
      tidelog consume --include 'orders-.*' --json
    With the flags of kafka-console-consumer.sh:
      tidelog consume --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning \\
        --property print.key=true --property key.separator=:
    """
    shown = {"key": key, "timestamp": timestamp, "headers": headers, "partition": place}
    short = {f"print.{name}": "true" for name, yes in {**shown, "offset": place}.items() if yes}
    form = short | _form_of(properties_file, properties, as_json)
    settings = {
        "isolation.level": one_of(isolation_level, _LEVELS, "--isolation-level"),
        **client_properties(consumer_file, consumer_properties, "--consumer-property"),
    }
    group = _group_of(group, settings.pop("group.id", None))
    _check_group(group, partition, offset)
    line = json_line if as_json else record_format(form, _safe()).line

    from tidelog.cli.consuming import Limits, print_records
    from tidelog.cli.record_spans import Source

    start = _start(offset, from_beginning)
    wanted = _topic_of(topic, topic_flag, _pattern(include, partition, offset))
    source = Source(
        topic=wanted, partition=partition, start=start, bootstrap=bootstrap, group=group
    )
    limits = Limits(records_max=max_messages, idle_ms_max=timeout_ms, follow=follow)
    print_records(source, limits, skipping(line) if skip else line, settings)


def _form_of(file: Path | None, texts: list[str] | None, as_json: bool) -> dict[str, str]:
    given = client_properties(file, texts, "--property")
    if as_json and given:
        name = next(iter(given))
        raise BadValue(f"--property {name} and --json: JSON has all of a record as it is")
    return given


def _group_of(flag: str | None, setting: str | None) -> str | None:
    """As in Kafka a group may be named as a setting of the consumer, too."""
    if flag is not None and setting is not None and flag != setting:
        raise BadValue(f"--group {flag} and group.id={setting}: give one of them")
    group = setting if flag is None else flag
    if group == "":
        raise BadValue("--group: a group's name must not be empty")
    return group


def _check_group(group: str | None, partition: int | None, offset: str | None) -> None:
    if group is not None and (partition is not None or offset is not None):
        option = "--offset" if partition is None else "--partition"
        raise BadValue(
            f"{option} and --group {group}: a group says itself what is read, and from where; "
            f"`tidelog groups reset {group}` changes that"
        )


def _pattern(
    include: str | None, partition: int | None, offset: str | None
) -> re.Pattern[str] | None:
    if include is None:
        return None
    if partition is not None or offset not in (None, "earliest", "latest"):
        option = "--offset" if partition is None else "--partition"
        raise BadValue(f"{option} and --include {include}: name a topic instead")
    try:
        return re.compile(include)
    except re.error as error:
        raise BadValue(f"--include {include}: is no regular expression: {error}") from None


def _topic_of(
    topic: str | None, flag: str | None, pattern: re.Pattern[str] | None
) -> str | re.Pattern[str]:
    name = topic or flag
    if pattern is not None:
        if name is not None:
            raise BadValue(f"{name} and --include {pattern.pattern}: give one of them")
        return pattern
    if name is None:
        raise BadValue("name a topic: tidelog consume TOPIC")
    if topic is not None and flag is not None and topic != flag:
        raise BadValue(
            f"{topic} and --topic {flag}: one topic can be read at a time, or several with "
            "--include REGEX"
        )
    return name


def _start(offset: str | None, from_beginning: bool) -> str | int:
    if offset is None:
        return "earliest" if from_beginning else "latest"
    if from_beginning and offset != "earliest":
        raise BadValue(f"--from-beginning and --offset {offset}: give one of them")
    if offset in ("earliest", "latest"):
        return offset
    if not (offset.isascii() and offset.isdecimal()):
        raise BadValue(f"--offset {offset}: must be earliest, latest, or a number from 0 on")
    return int(offset)


def _safe() -> Decode:
    """At a terminal a record is one line and cannot move the cursor; a file gets it as it is."""
    if not sys.stdout.isatty():
        return as_it_is

    from tidelog.log.dump_text import printable

    return lambda data: printable(data).encode()
