"""`tidelog consume`: the records of a topic as lines, from where one wants, until one has enough.

All partitions are read, or one, or with `--group` those that the group gives. As
kafka-console-consumer it begins at the end, or where the group is, and waits for what comes;
`--from-beginning` and `--exit` change the one and the other.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import (
    BOOTSTRAP_SERVER,
    Bootstrap,
    Zookeeper,
    client_properties,
    one_of,
    split_assignments,
)
from tidelog.cli.record_text import Decode, as_it_is, record_format

_Topic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Which to read.")]
_TopicFlag = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The same.")]
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
    With the flags of kafka-console-consumer.sh:
      tidelog consume --bootstrap-server 127.0.0.1:9092 --topic orders --from-beginning \\
        --property print.key=true --property key.separator=:
    """
    _check_group(group, partition, offset)
    shown = {"key": key, "timestamp": timestamp, "headers": headers}
    shown |= {"partition": place, "offset": place}
    short = {f"print.{name}": "true" for name, is_shown in shown.items() if is_shown}
    wanted = record_format(short | split_assignments(properties, "--property"), _safe())
    levels = ("read_committed", "read_uncommitted")
    settings = {
        "isolation.level": one_of(isolation_level, levels, "--isolation-level"),
        **client_properties(consumer_file, consumer_properties, "--consumer-property"),
    }

    from tidelog.cli.consuming import Limits, Source, print_records

    source = Source(
        topic=_topic_of(topic, topic_flag),
        partition=partition,
        start=_start(offset, from_beginning),
        bootstrap=bootstrap,
        group=group,
    )
    limits = Limits(records_max=max_messages, idle_ms_max=timeout_ms, follow=follow)
    print_records(source, limits, None if as_json else wanted, settings)


def _check_group(group: str | None, partition: int | None, offset: str | None) -> None:
    if group is not None and (partition is not None or offset is not None):
        option = "--offset" if partition is None else "--partition"
        raise BadValue(
            f"{option} and --group {group}: a group says itself what is read, and from where; "
            f"`tidelog groups reset {group}` changes that"
        )


def _topic_of(topic: str | None, flag: str | None) -> str:
    if topic is None and flag is None:
        raise BadValue("name a topic: tidelog consume TOPIC")
    if topic is not None and flag is not None and topic != flag:
        raise BadValue(f"{topic} and --topic {flag}: one topic can be read at a time")
    return topic or flag or ""


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
