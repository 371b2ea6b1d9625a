"""Groups for people, as kafka-consumer-groups.sh lays them out or as a table, and for programs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from tidelog.base.ids import TopicPartition
from tidelog.cli.group_progress import Progress
from tidelog.cli.printing import Format, complain, say, say_json, say_table
from tidelog.client.cluster import Broker
from tidelog.client.groups import EMPTY, Group, ListedGroup, Member

_MISSING: Final = "-"
_WIDTH_MIN: Final = 15
_WIDTHS: Final[Mapping[str, int]] = {
    "PARTITION": 10,
    "COORDINATOR (ID)": 25,
    "ASSIGNMENT-STRATEGY": 20,
    "STATE": 20,
    "CURRENT-ASSIGNMENT": 20,
    "TARGET-ASSIGNMENT-EPOCH": 25,
}
_REBALANCING: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
)

Table = tuple[Sequence[str], list[tuple[object, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown of groups."""

    what: str = "offsets"
    """`offsets`, `members` or `state`."""
    is_verbose: bool = False
    brokers: Mapping[int, Broker] = field(default_factory=dict)


def show_list(groups: Iterable[ListedGroup], how: Format, columns: Sequence[str]) -> None:
    """Names alone, if no columns beside them are wanted."""
    if how is Format.json:
        say_json([_listed(group) for group in groups])
    elif how is Format.table:
        rows = [(one.group_id, one.group_type, one.state, one.coordinator) for one in groups]
        say_table(("GROUP", "TYPE", "STATE", "COORDINATOR"), rows)
    elif columns:
        cells = {"TYPE": "group_type", "STATE": "state"}
        rows = [(one.group_id, *(getattr(one, cells[name]) for name in columns)) for one in groups]
        longest = max((_WIDTH_MIN, *(len(group.group_id) for group in groups)))
        say_columns(("GROUP", *columns), rows, {"GROUP": longest + 10, "TYPE": 20})
    else:
        for group in groups:
            say(group.group_id)


def show_groups(
    groups: Sequence[Group], progress: Mapping[str, list[Progress]], view: View, how: Format
) -> None:
    if how is Format.json:
        say_json([_plain(group, progress.get(group.group_id)) for group in groups])
        return
    tables = [_table([group], progress, view) for group in groups]
    if how is Format.table:
        say_table(*_table(groups, progress, view))
        return
    is_first = True
    for group, (headings, rows) in zip(groups, tables, strict=True):
        _note_state(group)
        if rows:
            if not is_first:
                say("")
            is_first = False
            say_columns(headings, rows, _WIDTHS)


def say_columns(
    headings: Sequence[str], rows: Iterable[Sequence[object]], widths: Mapping[str, int]
) -> None:
    """As Kafka's tools do: no narrower than they are there, and the last one as it is."""
    lines = [list(headings), *([str(cell) for cell in row] for row in rows)]
    columns = list(zip(*lines, strict=True))
    needed = [
        max(widths.get(column[0], _WIDTH_MIN), *(len(cell) for cell in column))
        for column in columns
    ]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, needed, strict=True))
        say(" ".join(cells).rstrip())


def _note_state(group: Group) -> None:
    if group.state == EMPTY:
        complain(f"group {group.group_id} has no active members")
    elif group.state in _REBALANCING:
        complain(f"group {group.group_id} is rebalancing")


def _table(groups: Sequence[Group], progress: Mapping[str, list[Progress]], view: View) -> Table:
    if view.what == "members":
        return _members_table(groups, view)
    if view.what == "state":
        return _states_table(groups, view)
    return _offsets_table(groups, progress, view)


def _offsets_table(
    groups: Sequence[Group], progress: Mapping[str, list[Progress]], view: View
) -> Table:
    epoch = ("LEADER-EPOCH",) if view.is_verbose else ()
    headings = (
        *("GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    rows = [
        (
            *(group.group_id, one.partition.topic, one.partition.partition),
            *((_leader_epoch(one),) if view.is_verbose else ()),
            _or_dash(one.committed.offset if one.committed is not None else None),
            _or_dash(one.log_end),
            _or_dash(one.lag),
            *_who(one.member),
        )
        for group in groups
        for one in progress[group.group_id]
    ]
    return headings, rows


def _members_table(groups: Sequence[Group], view: View) -> Table:
    has_instances = any(one.instance_id for group in groups for one in group.members)
    instance = ("GROUP-INSTANCE-ID",) if has_instances else ()
    verbose = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
    headings = (
        *("GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS"),
        *(verbose if view.is_verbose else ()),
    )
    rows = [
        (
            *(group.group_id, member.member_id),
            *((member.instance_id or "",) if has_instances else ()),
            *(member.host, member.client_id, len(member.assignment)),
            *(_details(group, member) if view.is_verbose else ()),
        )
        for group in groups
        for member in group.members
    ]
    return headings, rows


def _states_table(groups: Sequence[Group], view: View) -> Table:
    epochs = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if view.is_verbose else ()
    headings = (
        *("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS"),
    )
    rows = [
        (
            *(group.group_id, _address(group, view), group.assignor or _MISSING, group.state),
            *((_or_dash(group.epoch), _or_dash(group.target_epoch)) if view.is_verbose else ()),
            len(group.members),
        )
        for group in groups
    ]
    return headings, rows


def _address(group: Group, view: View) -> str:
    broker = view.brokers.get(group.coordinator)
    return f"{_MISSING if broker is None else broker.address}  ({group.coordinator})"


def _leader_epoch(one: Progress) -> str:
    is_known = one.committed is not None and one.committed.leader_epoch >= 0
    return str(one.committed.leader_epoch) if is_known and one.committed else _MISSING


def _who(member: Member | None) -> tuple[str, str, str]:
    if member is None:
        return _MISSING, _MISSING, _MISSING
    return member.member_id, member.host, member.client_id


def _details(group: Group, member: Member) -> tuple[str, str, str, str]:
    return (
        _or_dash(member.epoch),
        _said(member.assignment),
        _or_dash(group.target_epoch),
        _said(member.target or ()),
    )


def _said(partitions: Sequence[TopicPartition]) -> str:
    """`orders:0,1;users:0`."""
    topics = groupby(sorted(partitions), key=lambda one: one.topic)
    parts = [f"{name}:{','.join(str(one.partition) for one in ones)}" for name, ones in topics]
    return ";".join(parts) or _MISSING


def _or_dash(number: int | None) -> str:
    return _MISSING if number is None else str(number)


def _listed(group: ListedGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "coordinator": group.coordinator,
    }


def _plain(group: Group, progress: list[Progress] | None) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "coordinator": group.coordinator,
        "assignor": group.assignor or None,
        "group_epoch": group.epoch,
        "target_assignment_epoch": group.target_epoch,
        "members": [_plain_member(member) for member in group.members],
        "partitions": [_plain_progress(one) for one in progress or ()],
    }


def _plain_member(member: Member) -> dict[str, Any]:
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "epoch": member.epoch,
        "assignment": [_plain_partition(one) for one in member.assignment],
        "target_assignment": None
        if member.target is None
        else [_plain_partition(one) for one in member.target],
    }


def _plain_progress(one: Progress) -> dict[str, Any]:
    committed = one.committed
    return {
        **_plain_partition(one.partition),
        "current_offset": None if committed is None else committed.offset,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "log_end_offset": one.log_end,
        "lag": one.lag,
        "consumer_id": None if one.member is None else one.member.member_id,
    }


def _plain_partition(one: TopicPartition) -> dict[str, Any]:
    return {"topic": one.topic, "partition": one.partition}
