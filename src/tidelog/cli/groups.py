"""`tidelog groups`: list, describe, reset and delete consumer groups, in words or Kafka's flags."""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from tidelog.base.errors import BadValue, ErrorCode
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.group_choice import AllGroups, GroupFlags, GroupNames, choose_groups
from tidelog.cli.group_progress import progress_of
from tidelog.cli.group_reset import reset_command
from tidelog.cli.group_view import View, say_columns, show_groups, show_list
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, ActionFirst, Bootstrap, action_first
from tidelog.cli.printing import (
    Format,
    FormatOption,
    JsonOption,
    complain,
    report,
    say_json,
    say_table,
)
from tidelog.cli.reassign_plan import find_partitions
from tidelog.client.client import Client
from tidelog.client.groups import (
    Group,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
)

STATES: Final = (
    *("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance"),
    *("Assigning", "Reconciling"),
)
TYPES: Final = ("Classic", "Consumer")


class Actions(ActionFirst):
    """`--reset-offsets` is Kafka's flag for `reset`; and of `list` it takes `--state` and `--type`
    with a value, to choose by, or without, to show them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, arranged(args, self.commands, self.valued()))


def arranged(
    arguments: list[str], actions: Collection[str], valued: Collection[str] = ()
) -> list[str]:
    renamed = ["--reset" if one == "--reset-offsets" else one for one in arguments]
    ordered = action_first(renamed, actions, valued)
    if ordered[:1] != ["list"]:
        return ordered
    return [_with_value(ordered, place) for place in range(len(ordered))]


def _with_value(arguments: list[str], place: int) -> str:
    given, following = arguments[place], arguments[place + 1 : place + 2]
    has_value = bool(following) and not following[0].startswith("-")
    return f"{given}=" if given in ("--state", "--type") and not has_value else given


app = typer.Typer(cls=Actions, no_args_is_help=True, rich_markup_mode=None)


class What(StrEnum):
    offsets = "offsets"
    members = "members"
    state = "state"


@app.callback()
def groups() -> None:
    """List, describe, reset and delete consumer groups.

    \b
    In words:
      tidelog groups list
      tidelog groups describe billing
      tidelog groups describe billing --members --verbose
      tidelog groups reset billing --topic orders --to-earliest --execute
      tidelog groups delete billing
    With the flags of kafka-consumer-groups.sh:
      tidelog groups --bootstrap-server 127.0.0.1:9092 --describe --group billing
      tidelog groups --reset-offsets --group billing --topic orders --to-earliest --execute

    `tidelog groups reset --help` explains the options of `reset`, and so on.
    """


@app.command("list")
def list_command(
    state: Annotated[
        str | None,
        typer.Option(metavar="STATES", help="Those in a state, such as Stable,Empty; or show it."),
    ] = None,
    group_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPES", help="Classic or Consumer; or show it."),
    ] = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Print the names of all groups, or of some.

    \b
    For example:
      tidelog groups list
      tidelog groups list --format table
      tidelog groups list --state Empty
    """
    states = _chosen(state, STATES, "--state")
    types = _chosen(group_type, TYPES, "--type")
    with admin_client(bootstrap, client_file) as client:
        found = list_groups(client, states, types)
    shown = {"TYPE": group_type, "STATE": state}
    columns = [name for name, given in shown.items() if given is not None]
    show_list(found, Format.json if as_json else how or Format.text, columns)


@app.command("describe")
def describe_command(
    names: GroupNames = None,
    group: GroupFlags = None,
    all_groups: AllGroups = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="What is committed, and the lag. [default]")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State and coordinator.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With epochs, and what each member reads.")
    ] = False,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show how far groups are in every partition, or their members, or their state.

    LAG is how many offsets lie between what a group has committed and the end of the partition.

    \b
    For example:
      tidelog groups describe billing
      tidelog groups describe billing --members --verbose
      tidelog groups describe --all-groups --state
    """
    what = _what({What.offsets: offsets, What.members: members, What.state: state})
    form = Format.json if as_json else how or Format.text
    with admin_client(bootstrap, client_file) as client:
        wanted = choose_groups(client, names, group, all_groups, none_means_all=True)
        found, is_missed = _described(client, wanted.names, may_miss=wanted.is_all)
        needed = what is What.offsets or form is Format.json
        progress = progress_of(client, found) if needed else {}
        view = View(what=what, is_verbose=verbose, brokers=client.cluster([]).brokers)
    show_groups(found, progress, view, form)
    if is_missed:
        raise typer.Exit(1)


app.command("reset")(reset_command)


@app.command("delete")
def delete_command(
    names: GroupNames = None,
    group: GroupFlags = None,
    all_groups: AllGroups = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Delete groups, with what they have committed. They must have no members.

    \b
    For example:
      tidelog groups delete billing
    """
    with admin_client(bootstrap, client_file) as client:
        wanted = choose_groups(client, names, group, all_groups)
        outcomes = delete_groups(client, wanted.names)
    report(outcomes, "Deleted group {}.")


@app.command("delete-offsets")
def delete_offsets_command(
    names: GroupNames = None,
    group: GroupFlags = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:0,1]", help="A topic or some partitions; may be repeated."),
    ] = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Forget what a group has committed for topics it does not read any more.

    \b
    For example:
      tidelog groups delete-offsets billing --topic users
    """
    if not topic:
        raise BadValue("say of which topic: --topic TOPIC, or TOPIC:0,1")
    with admin_client(bootstrap, client_file) as client:
        (name,) = choose_groups(client, names, group, one_only=True).names
        outcomes = delete_offsets(client, name, find_partitions(client.cluster(), topic))
    rows = [
        (one.topic, one.partition, "Successful" if error is None else f"Error: {error}")
        for one, error in sorted(outcomes.items())
    ]
    headings = ("TOPIC", "PARTITION", "STATUS")
    if as_json or how is Format.json:
        say_json([dict(zip(("topic", "partition", "status"), row, strict=True)) for row in rows])
    elif how is Format.table:
        say_table(headings, rows)
    else:
        say_columns(headings, rows, {"PARTITION": 10})
    if any(outcomes.values()):
        raise typer.Exit(1)


def _chosen(text: str | None, allowed: Sequence[str], option: str) -> list[str]:
    """In any case of letters, as brokers want them."""
    known = {one.lower(): one for one in allowed}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in known:
            raise BadValue(f"{option} {word}: must be one of {', '.join(allowed)}")
    return [known[word.lower()] for word in words]


def _what(asked: dict[What, bool]) -> What:
    chosen = [what for what, is_asked in asked.items() if is_asked]
    if len(chosen) > 1:
        raise BadValue(f"--{chosen[0]} and --{chosen[1]}: give one of them")
    return chosen[0] if chosen else What.offsets


def _described(client: Client, names: Iterable[str], *, may_miss: bool) -> tuple[list[Group], bool]:
    """Those that are there, by name, and whether one is not that was asked for."""
    found = []
    is_missed = False
    for _, group in sorted(describe_groups(client, names).items()):
        if isinstance(group, Group):
            found.append(group)
        elif not (may_miss and group.code is ErrorCode.group_id_not_found):
            complain(group)
            is_missed = True
    return found, is_missed
