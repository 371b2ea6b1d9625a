"""`tidelog groups reset`: where groups shall go on from, shown first and written when told to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.group_choice import AllGroups, GroupFlags, GroupNames, choose_groups
from tidelog.cli.group_view import say_columns
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap
from tidelog.cli.printing import (
    Format,
    FormatOption,
    JsonOption,
    complain,
    remark,
    say,
    say_json,
    say_table,
)
from tidelog.cli.reassign_plan import find_partitions, partition_of
from tidelog.cli.reset_file import csv_lines, read_resets
from tidelog.cli.reset_target import Offsets, Target, choose_target, clamp, resolve
from tidelog.client.client import Client
from tidelog.client.cluster import Cluster
from tidelog.client.groups import DEAD, EMPTY, Group, describe_groups
from tidelog.client.offsets import commit_offsets, committed_offsets

_Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1]", help="All of it or some; may be repeated."),
]
_AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All that the group has committed offsets of.")
]
_ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")]
_ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
_ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Where it is, or to the end where it never was.")
]
_ToOffset = Annotated[int | None, typer.Option(metavar="N", min=0, help="To this offset.")]
_ShiftBy = Annotated[
    int | None, typer.Option(metavar="N", help="So many further, or back if N is below 0.")
]
_ToDatetime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="To records since then: 2026-05-01T12:00:00.000, in UTC."),
]
_ByDuration = Annotated[
    str | None, typer.Option(metavar="P1DT2H", help="To records since so long ago.")
]
_FromFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="To what --export has printed.")
]
_Execute = Annotated[bool, typer.Option("--execute", help="Do it, not only show it.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show it. [default]")]
_Export = Annotated[bool, typer.Option("--export", help="Print CSV, for --from-file.")]


def reset_command(
    names: GroupNames = None,
    group: GroupFlags = None,
    all_groups: AllGroups = False,
    topics: _Topics = None,
    all_topics: _AllTopics = False,
    to_earliest: _ToEarliest = False,
    to_latest: _ToLatest = False,
    to_current: _ToCurrent = False,
    to_offset: _ToOffset = None,
    shift_by: _ShiftBy = None,
    to_datetime: _ToDatetime = None,
    by_duration: _ByDuration = None,
    from_file: _FromFile = None,
    execute: _Execute = False,
    dry_run: _DryRun = False,
    export: _Export = False,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Set where groups go on from. They must have no members; without --execute nothing changes.

    \b
    For example:
      tidelog groups reset billing --topic orders --to-earliest
      tidelog groups reset billing --topic orders:0,1 --shift-by -100 --execute
      tidelog groups reset billing --all-topics --to-datetime 2026-05-01T12:00:00 --execute
      tidelog groups reset billing --all-topics --to-current --export > offsets.csv
      tidelog groups reset billing --from-file offsets.csv --execute
    """
    targets = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    target = choose_target(targets)
    _check(target, topics or [], all_topics)
    if execute and dry_run:
        raise BadValue("--execute and --dry-run: give one of them")
    with admin_client(bootstrap, client_file) as client:
        chosen = choose_groups(client, names, group, all_groups).names
        resetting = _Resetting(client, target, topics or [], is_done=execute)
        found = resetting.reset(chosen)
    if export:
        for line in csv_lines(found, with_groups=len(chosen) > 1):
            say(line)
    else:
        _show(found, Format.json if as_json else how or Format.text)
    if not execute:
        remark("Nothing was changed: --execute does it.")
    if len(found) < len(chosen):
        raise typer.Exit(1)


def _check(target: Target, topics: Sequence[str], all_topics: bool) -> None:
    if topics and all_topics:
        raise BadValue("--topic and --all-topics: give one of them")
    if target.file is not None and (topics or all_topics):
        raise BadValue("--from-file says which partitions: leave out --topic and --all-topics")
    if target.file is None and not topics and not all_topics:
        raise BadValue("say of which partitions: --topic TOPIC, TOPIC:0,1, or --all-topics")


class _Resetting:
    def __init__(
        self, client: Client, target: Target, topics: Sequence[str], *, is_done: bool
    ) -> None:
        self._client = client
        self._target = target
        self._topics = topics
        self._is_done = is_done
        self._cluster: Cluster = client.cluster()

    def reset(self, names: Sequence[str]) -> dict[str, Offsets]:
        """Of each group that could be; why another one could not be is said."""
        plans = None if self._target.file is None else read_resets(self._target.file)
        if plans is not None and None in plans and len(names) > 1:
            raise BadValue(f"{self._target.file}: does not say which group a line is for")
        found = {}
        for name, group in describe_groups(self._client, names).items():
            try:
                _check_group(name, group)
                if plans is None:
                    offsets = self._resolve(name)
                else:
                    offsets = self._planned(name, plans.get(None) or plans.get(name))
                if self._is_done:
                    commit_offsets(self._client, name, offsets)
            except KafkaError as error:
                complain(error)
            except BadValue as mistake:
                if len(names) == 1:
                    raise
                # Others may be reset by now, and must be told of.
                complain(f"group {name}: {mistake}")
            else:
                found[name] = offsets
        return found

    def _resolve(self, name: str) -> Offsets:
        committed = committed_offsets(self._client, name)
        if self._topics:
            wanted = find_partitions(self._cluster, self._topics)
        else:
            wanted = [one for one in committed if self._is_there(one)]
            if not wanted:
                complain(f"group {name} has committed no offsets: name topics with --topic")
        return resolve(self._client, self._target, sorted(wanted), committed)

    def _planned(self, name: str, plan: Mapping[TopicPartition, int] | None) -> Offsets:
        if plan is None:
            raise KafkaError(
                ErrorCode.group_id_not_found, f"{self._target.file} has no lines for group {name}"
            )
        for one in plan:
            partition_of(self._cluster, one)
        return clamp(self._client, dict(sorted(plan.items())))

    def _is_there(self, one: TopicPartition) -> bool:
        topic = self._cluster.topics.get(one.topic)
        is_there = topic is not None and one.partition < len(topic.partitions)
        if not is_there:
            complain(f"{one} is not there any more: its offset stays as it is")
        return is_there


def _check_group(name: str, group: Group | KafkaError) -> None:
    """Its members would commit over it, and not look at what was set."""
    if isinstance(group, KafkaError):
        if group.code is not ErrorCode.group_id_not_found:
            raise group
        complain(f"there is no group {name} yet")
    elif group.state not in (EMPTY, DEAD) or group.members:
        raise KafkaError(
            ErrorCode.non_empty_group,
            f"group {name} has members ({len(group.members)}, and is in state {group.state}): "
            "its offsets can be reset when all have left",
        )


def _show(found: Mapping[str, Offsets], how: Format) -> None:
    rows: list[tuple[Any, ...]] = [
        (group, one.topic, one.partition, offset)
        for group, offsets in found.items()
        for one, offset in offsets.items()
    ]
    headings = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    if how is Format.json:
        names = ("group", "topic", "partition", "new_offset")
        say_json([dict(zip(names, row, strict=True)) for row in rows])
    elif how is Format.table:
        say_table(headings, rows)
    elif found:
        say_columns(headings, rows, {"PARTITION": 10})
