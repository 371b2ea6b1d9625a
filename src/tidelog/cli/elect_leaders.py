"""`tidelog elect-leaders`: make the preferred replicas lead, or any where none may (E3, E4)."""

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.base.errors import BadValue, ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.cli.admin import admin_client
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap, Zookeeper
from tidelog.cli.printing import (
    Format,
    FormatOption,
    JsonOption,
    complain,
    json_text,
    say,
    say_json,
    say_table,
)
from tidelog.cli.reassign_plan import find_partitions
from tidelog.client.elections import Elected
from tidelog.client.elections import elect_leaders as hold_elections


class ElectionType(StrEnum):
    preferred = "preferred"
    unclean = "unclean"


def elect_leaders(
    partitions: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:PARTITION]", help="A topic, or some of its partitions."),
    ] = None,
    election_type: Annotated[
        ElectionType,
        typer.Option(
            case_sensitive=False,
            help="preferred: the first replica; unclean: any, where nobody leads.",
        ),
    ] = ElectionType.preferred,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="With --partition.")] = None,
    partition: Annotated[int | None, typer.Option(metavar="N", help="Of --topic.")] = None,
    is_all: Annotated[
        bool, typer.Option("--all-topic-partitions", "--all", help="Of all topics.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", "--file", metavar="FILE", help="Partitions as JSON."),
    ] = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: Annotated[
        Path | None,
        typer.Option(
            "--command-config", "--admin.config", metavar="FILE", help="Of the client, one a line."
        ),
    ] = None,
    _zookeeper: Zookeeper = None,
) -> None:
    """Give partitions new leaders.

    A preferred election makes the first replica of a partition lead again, say after its broker
    was away. An unclean one is for partitions nobody leads: whichever replica is there leads, and
    records that only others have ARE LOST.

    \b
    For example:
      tidelog elect-leaders --all
      tidelog elect-leaders orders:0 users
      tidelog elect-leaders --election-type unclean --topic orders --partition 0
    """
    words = _words(partitions or [], topic, partition)
    if (bool(words), is_all, file is not None).count(True) != 1:
        raise BadValue("name partitions, or a file with them, or --all-topic-partitions: one of it")
    with admin_client(bootstrap, client_file) as client:
        chosen = None if is_all else read_partitions(file) if file is not None else None
        if words:
            chosen = find_partitions(client.cluster(), words)
        elected = hold_elections(client, election_type.value, chosen)
    _show(elected, election_type, Format.json if as_json else how or Format.text)


def _words(partitions: list[str], topic: str | None, partition: int | None) -> list[str]:
    if partition is not None and topic is None:
        raise BadValue("--partition: say of which --topic")
    if topic is None:
        return partitions
    return [*partitions, topic if partition is None else f"{topic}:{partition}"]


def read_partitions(file: Path) -> list[TopicPartition]:
    """`{"partitions": [{"topic": "orders", "partition": 0}]}`, as Kafka's tool takes it."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{file}: is not JSON: {error}") from None
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadValue(f'{file}: must be {{"partitions": [{{"topic": NAME, "partition": N}}]}}')
    found = []
    for entry in entries:
        match entry:
            case {"topic": str(topic), "partition": int(index)}:
                found.append(TopicPartition(topic, index))
            case _:
                raise BadValue(f"{file}: must have topic and partition, not {json_text(entry)}")
    return found


def _show(elected: Elected, kind: ElectionType, how: Format) -> None:
    rows = sorted(elected.items())
    if how is Format.json:
        say_json(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "error": None if error is None else error.code.name.upper(),
                    "message": None if error is None else error.message,
                }
                for one, error in rows
            ]
        )
    elif how is Format.table:
        named = [(one.topic, one.partition, "elected" if e is None else e) for one, e in rows]
        say_table(("TOPIC", "PARTITION", "OUTCOME"), named)
    else:
        _show_as_kafka_does(elected, kind)
    not_needed = ErrorCode.election_not_needed
    if any(error is not None and error.code is not not_needed for error in elected.values()):
        raise typer.Exit(1)


def _show_as_kafka_does(elected: Elected, kind: ElectionType) -> None:
    good = [one for one, error in elected.items() if error is None]
    unneeded = [
        one
        for one, error in elected.items()
        if error is not None and error.code is ErrorCode.election_not_needed
    ]
    title = kind.value.upper()
    if good:
        say(f"Successfully completed leader election ({title}) for partitions {_named(good)}")
    if unneeded or not elected:
        whom = f"partitions {_named(unneeded)}" if unneeded else "all partitions"
        say(f"Valid replica already elected for {whom}")
    for one, error in sorted(elected.items()):
        if error is not None and one not in unneeded:
            complain(f"leader election ({title}) for partition {one}: {error}")


def _named(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
