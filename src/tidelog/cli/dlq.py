"""`tidelog dlq`: what is in a dead-letter topic and why, and back with it after a fix (A6, P6)."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap
from tidelog.cli.printing import JsonOption, complain, counted, say, say_json
from tidelog.cli.progress import Progress
from tidelog.client.client import Client
from tidelog.client.cluster import Topic
from tidelog.client.fetching import Range
from tidelog.client.places import Place, find_ranges, parse_place

if TYPE_CHECKING:
    from tidelog.spark.redriving import Redriver, Survey

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Whose dead letters; or TOPIC.dlq, where they are.")
]
_From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="An offset, offsets such as 0:12,1:7, a time, earliest or latest.",
    ),
]
_To = Annotated[str, typer.Option("--to", metavar="WHERE", help="The same; up to, without it.")]
_Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Of the dead-letter topic."),
]
_Offset = Annotated[
    str | None,
    typer.Option("--offset", "-o", metavar="N[-M]", help="One in that partition, or N to M."),
]
_Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only those whose reason has this in it.")
]
_Stage = Annotated[
    str | None, typer.Option(metavar="STAGE", help="Only those that this stage gave up.")
]


@app.callback()
def dlq() -> None:
    """Look at dead letters, and write them back where they came from.

    Pipelines put records that do not decode into TOPIC.dlq, with their origin and the reason.
    WHERE is an offset (1200, or 0:1200,3:7 by partition), a time (2026-05-01T12:00:00Z, in UTC if
    it does not say otherwise, or 1777636800000ms), earliest or latest.

    \b
    For example:
      tidelog dlq list orders
      tidelog dlq show orders --reason 'not UTF-8'
      tidelog dlq redrive orders
      tidelog dlq redrive orders --execute
    """


@app.command("list")
def list_letters(
    topic: _Topic,
    start: _From = "earliest",
    end: _To = "latest",
    partition: _Partition = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Count dead letters by origin, stage and reason, the most frequent first.

    FIRST and LAST are when they became dead letters, ATTEMPT is how often the worst has failed.

    \b
    For example:
      tidelog dlq list orders
      tidelog dlq list orders --from 2026-05-01T12:00:00Z --json
    """
    from tidelog.cli.dlq_view import counts_as_json, say_counts
    from tidelog.spark.dead_letter_counts import Counts
    from tidelog.spark.dead_letter_reading import read_letters

    counts = Counts(("origin_topic", "stage", "reason"))
    where = (start, end, partition, None)
    with (
        _letters(bootstrap, topic, where) as (client, name, ranges),
        Progress("records read") as progress,
    ):
        for _, letters in read_letters(client, ranges):
            counts.add(letters)
            progress.tell(counts.records)
    if as_json:
        say_json(counts_as_json("topic", counts.sorted()))
    elif counts.records:
        say_counts("FROM", counts.sorted())
    else:
        say(f"{name}: no dead letters")


@app.command("show")
def show_letters(
    topic: _Topic,
    partition: _Partition = None,
    offset: _Offset = None,
    reason: _Reason = None,
    stage: _Stage = None,
    start: _From = "earliest",
    end: _To = "latest",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1)] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", "-j", help="A JSON object for each, with all of its bytes.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Print dead letters: where they came from, why they are here, key, value and headers.

    \b
    For example:
      tidelog dlq show orders --partition 0 --offset 42
      tidelog dlq show orders --reason 'not UTF-8' --limit 100 --json | jq .origin
    """
    from tidelog.cli.dlq_view import letter_as_json, say_letter
    from tidelog.spark.dead_letter_reading import Choice, read_letters

    choice = Choice(reason=reason, stage=stage)
    left = limit
    where = (start, end, partition, offset)
    with (
        _letters(bootstrap, topic, where) as (client, name, ranges),
        closing(read_letters(client, ranges)) as read,
        Progress() as progress,
    ):
        for wanted, letters in read:
            progress.tell(letters.num_rows)
            for letter in choice.of(letters).slice(0, left).to_pylist():
                if as_json:
                    say(letter_as_json(name, wanted.partition, letter))
                else:
                    say_letter(name, wanted.partition, letter)
                left -= 1
            if not left:
                return
    if left == limit and not as_json:
        say(f"{name}: no such dead letters")


@app.command("redrive")
def redrive_letters(
    topic: _Topic,
    into: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="[default: where they came from]")
    ] = None,
    reason: _Reason = None,
    stage: _Stage = None,
    attempts_max: Annotated[
        int | None,
        typer.Option(
            "--max-attempts", metavar="N", min=1, help="Only those that failed N times at most."
        ),
    ] = None,
    partition: _Partition = None,
    offset: _Offset = None,
    start: _From = "earliest",
    end: _To = "latest",
    is_real: Annotated[bool, typer.Option("--execute", help="Write them.")] = False,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Write dead letters back where they came from; without --execute, say what would be written.

    Keys, values, headers and times stay as they were, and so do partitions unless --into is used,
    where keys choose them. What fails again counts its attempts on. The dead letters stay where
    they are: written again, they are there again (at least once).

    \b
    For example:
      tidelog dlq redrive orders --reason 'not JSON'
      tidelog dlq redrive orders --reason 'not JSON' --max-attempts 3 --execute
      tidelog dlq redrive orders --partition 0 --offset 12-40 --into orders.looked-at --execute
    """
    from tidelog.spark.copy_targets import find_target
    from tidelog.spark.dead_letter_reading import Choice
    from tidelog.spark.redriving import Redriver

    choice = Choice(reason=reason, stage=stage, attempts_max=attempts_max)
    where = (start, end, partition, offset)
    with _letters(bootstrap, topic, where) as (client, name, ranges):
        if into == name:
            raise BadValue(f"--into {into}: that is where the dead letters are")
        if into is not None:
            find_target(client, into, partition_count=1)
        redriver = Redriver(client, ranges, choice, into)
        with Progress("records read") as progress:
            survey = redriver.survey(progress.tell)
        if not as_json:
            _say_survey(name, survey)
        _check_targets(survey)
        written = _write(redriver, survey, ranges, offset) if is_real else 0
    if as_json:
        say_json(_as_json(survey, written))
    else:
        _say_outcome(name, survey, ranges, written if is_real else None)


def _say_survey(name: str, survey: "Survey") -> None:
    from tidelog.cli.dlq_view import say_counts, say_left_out

    if survey.targets:
        say_counts("TO", survey.counts.sorted())
    say_left_out(name, survey.read, survey.matching, survey.homeless)


def _check_targets(survey: "Survey") -> None:
    for missing, count in survey.missing.items():
        raise BadValue(
            f"{counted(count)} came from {missing}, and there is no such topic: tidelog topics "
            f"create {missing}, or name another one with --into"
        )


def _write(redriver: "Redriver", survey: "Survey", ranges: list[Range], offset: str | None) -> int:
    total = survey.targets.total()
    written = 0
    try:
        with Progress(f"of {total:,} records written") as progress:

            def tell(count: int) -> None:
                nonlocal written
                written = count
                progress.tell(count)

            return redriver.redrive(tell)
    except KeyboardInterrupt:
        complain(f"interrupted: {_rest(redriver.reached, ranges, offset)}")
        raise
    except BaseException:
        complain(f"at least {counted(written)} of {total} were written")
        raise


def _rest(reached: Mapping[int, int], ranges: list[Range], offset: str | None) -> str:
    """How to write what was not written, and no more; also nothing that has died meanwhile."""
    left = [one for one in ranges if reached[one.partition] < one.end]
    if not left:
        return "all were written"
    if offset is not None:
        places = f"--offset {reached[left[0].partition]}-{left[0].end - 1}"
    else:
        starts = ",".join(f"{one.partition}:{reached[one.partition]}" for one in left)
        ends = ",".join(f"{one.partition}:{one.end}" for one in left)
        places = f"--from {starts} --to {ends}"
    return f"for the rest, and no more than that, do the same with {places}"


def _say_outcome(name: str, survey: "Survey", ranges: list[Range], written: int | None) -> None:
    total = survey.targets.total()
    if not total:
        say(f"{name}: nothing to write")
    elif written is None:
        say(f"{counted(total)} would be written; nothing was: add --execute to write them")
    else:
        ends = ",".join(f"{one.partition}:{one.end}" for one in ranges)
        say(f"{counted(written)} written; they stay in {name}, what follows them: --from {ends}")


def _as_json(survey: "Survey", written: int) -> dict[str, Any]:
    from tidelog.cli.dlq_view import counts_as_json

    return {
        "read": survey.read,
        "matching": survey.matching,
        "without_origin": survey.homeless,
        "written": written,
        "targets": counts_as_json("topic", survey.counts.sorted()),
    }


Where = tuple[str, str, int | None, str | None]
"""From, to, partition and offset, as they were said."""


@contextmanager
def _letters(bootstrap: str, topic: str, where: Where) -> Iterator[tuple[Client, str, list[Range]]]:
    """A client, the dead-letter topic, and the parts of it that are meant."""
    from tidelog.spark.dead_letter_reading import dead_letter_topic

    start, end, partition, offset = where
    places = (parse_place("--from", start), parse_place("--to", end))
    if offset is not None:
        places = parse_offsets(offset, partition, is_bounded=(start, end) != ("earliest", "latest"))
    name = dead_letter_topic(topic)
    with Client(bootstrap) as client:
        found = _find(client, name)
        yield client, name, find_ranges(client, found, *places, partition=partition)


def _find(client: Client, name: str) -> Topic:
    try:
        return client.cluster([name]).topic(name)
    except KafkaError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        raise KafkaError(error.code, f"there is no topic {name}, so no dead letters") from error


def parse_offsets(text: str, partition: int | None, *, is_bounded: bool) -> tuple[Place, Place]:
    """`12`, or `12-40` with both ends."""
    said = f"--offset {text}"
    found = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text.strip())
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise BadValue(f"{said}: must be an offset such as 12, or a range such as 12-40")
    if partition is None:
        raise BadValue(f"{said}: say of which --partition")
    if is_bounded:
        raise BadValue(f"{said}: leave out --from and --to, or use these instead")
    first, last = int(found[1]), int(found[2] or found[1])
    return (
        Place(said=said, offsets={partition: first}),
        Place(said=said, offsets={partition: last + 1}),
    )
