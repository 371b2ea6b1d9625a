"""`tidelog reassign`: move replicas between brokers, in words or Kafka's flags (T3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, ActionFirst, Bootstrap
from tidelog.cli.printing import Format, FormatOption, complain, remark, say
from tidelog.cli.reassign_plan import (
    Plan,
    current_plan,
    find_partitions,
    parse_brokers,
    plan_of_words,
    plan_text,
    propose,
    read_plan,
    read_topics_to_move,
)
from tidelog.cli.reassign_throttle import (
    apply_throttle,
    clear_throttles,
    stable_replicas,
    throttle_changes,
    with_ongoing,
)
from tidelog.cli.reassign_view import Progress, look, show_ongoing, show_status, summary
from tidelog.client.client import Client
from tidelog.client.cluster import Cluster
from tidelog.client.reassignments import Outcomes, alter_reassignments, list_reassignments
from tidelog.client.sockets import pause_ms
from tidelog.cluster.image import BrokerInfo

_LOOK_EVERY_MS: Final = 500


class Actions(ActionFirst):
    """`--json` is short for `--format json`, as in other commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spelt_out = ["--format=json" if given == "--json" else given for given in args]
        return super().parse_args(ctx, spelt_out)


app = typer.Typer(cls=Actions, no_args_is_help=True, rich_markup_mode=None)

_Partitions = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC[:PARTITION]", help="A topic, or one or some of its partitions."),
]
_File = Annotated[
    Path | None,
    typer.Option("--reassignment-json-file", "--file", metavar="FILE", help="A plan as JSON."),
]
_Preserve = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave speed limits as they are.")
]
_Wait = Annotated[bool, typer.Option("--wait", help="Until nothing is moving any more.")]


@app.callback()
def reassign() -> None:
    """Move replicas between brokers: other brokers, or more or fewer replicas.

    \b
    In words:
      tidelog reassign execute orders:0 --replicas 1,2,3
      tidelog reassign list
      tidelog reassign verify orders --wait
      tidelog reassign cancel orders
    A plan for many partitions, carried out slowly:
      tidelog reassign generate orders users --broker-list 1,2,3
      tidelog reassign execute --file plan.json --throttle 10000000
      tidelog reassign verify --file plan.json
    With the flags of kafka-reassign-partitions.sh:
      tidelog reassign --bootstrap-server 127.0.0.1:9092 --execute \\
        --reassignment-json-file plan.json
    """


@app.command("generate")
def generate_command(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Topics, by name.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--topics-to-move-json-file", metavar="FILE", help="Topics, as JSON."),
    ] = None,
    broker_list: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="Where their replicas may be. [default: all brokers]"),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="[default: as many as there are]")
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Do not look at racks.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Propose a plan that spreads the replicas of topics evenly, and moves little for it.

    Nothing is changed. The last line printed is the plan: put it into a file for `execute`.

    \b
    For example:
      tidelog reassign generate orders users --broker-list 1,2,3 | tail -1 > plan.json
    """
    names = [*(topics or ()), *(read_topics_to_move(file) if file is not None else ())]
    if not names:
        raise BadValue("name a topic, or a file with --topics-to-move-json-file")
    with admin_client(bootstrap, client_file) as client:
        cluster = client.cluster()
    brokers = _brokers(cluster, broker_list, with_racks=not disable_rack_aware)
    chosen = [cluster.topic(name) for name in dict.fromkeys(names)]
    plan = propose(chosen, brokers, replication_factor)
    say("Current partition replica assignment")
    say(plan_text(current_plan(cluster, plan)))
    say("")
    say("Proposed partition reassignment configuration")
    say(plan_text(plan))


@app.command("execute")
def execute_command(
    partitions: _Partitions = None,
    replicas: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="The brokers, the preferred leader first."),
    ] = None,
    file: _File = None,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="The most that a broker copies in a second."),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Though other replicas are being moved.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Begin to move replicas. It goes on by itself: `list` and `verify` show how far it is.

    With a whole topic the brokers take turns to be the preferred leader of its partitions. What
    is printed first is the way back: a plan with everything as it is now.

    \b
    For example:
      tidelog reassign execute orders:0 --replicas 1,2,3
      tidelog reassign execute --file plan.json --throttle 10000000
    """
    with admin_client(bootstrap, client_file) as client:
        cluster = client.cluster()
        plan = _plan(cluster, partitions or [], replicas, file)
        ongoing = list_reassignments(client)
        current = stable_replicas(current_plan(cluster, plan), ongoing)
        if ongoing and not additional:
            raise BadValue(
                f"replicas are being moved already, {next(iter(ongoing))} among them: wait "
                "(`tidelog reassign verify --wait`), or add --additional"
            )
        say("Current partition replica assignment")
        say("")
        say(plan_text(current))
        say("")
        say("Save this to use as the --reassignment-json-file option during rollback")
        if throttle is not None:
            moves = with_ongoing(plan, ongoing)
            before = stable_replicas(current_plan(cluster, moves), ongoing)
            apply_throttle(client, throttle_changes(before, moves, throttle))
            say(
                f"The inter-broker throttle limit was set to {throttle} B/s: run "
                "`tidelog reassign verify` when all is done, to remove it."
            )
        outcomes = alter_reassignments(client, plan)
    _report(outcomes, "Successfully started partition reassignments for {}")


@app.command("verify")
def verify_command(
    partitions: _Partitions = None,
    file: _File = None,
    preserve_throttles: _Preserve = False,
    wait: _Wait = False,
    how: FormatOption = None,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Say whether moves are done; when all are, take away the speed limit they had.

    Without a plan or a partition it is about everything that is being moved.

    \b
    For example:
      tidelog reassign verify orders --wait
      tidelog reassign verify --file plan.json --format table
    """
    with admin_client(bootstrap, client_file) as client:
        plan = read_plan(file) if file is not None else {}
        cluster = client.cluster()
        asked = [*plan, *find_partitions(cluster, partitions or [])]
        found = look(client, asked or None, plan)
        if wait:
            found = _wait(client, found, plan)
        show_status(found, how or Format.text)
        if not preserve_throttles and not list_reassignments(client):
            clear_throttles(client, {one.topic for one in asked}, () if asked else cluster.topics)
    if any(one.is_elsewhere for one in found):
        raise typer.Exit(1)


@app.command("cancel")
def cancel_command(
    partitions: _Partitions = None,
    file: _File = None,
    preserve_throttles: _Preserve = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Take moves back: the replicas stay, or are again, where they were.

    \b
    For example:
      tidelog reassign cancel orders
      tidelog reassign cancel --file plan.json
    """
    if not partitions and file is None:
        raise BadValue("name a topic or a partition, or a plan with --reassignment-json-file")
    with admin_client(bootstrap, client_file) as client:
        plan = read_plan(file) if file is not None else {}
        asked = {*plan, *find_partitions(client.cluster(), partitions or [])}
        ongoing = [one for one in list_reassignments(client) if one in asked]
        outcomes = alter_reassignments(client, dict.fromkeys(ongoing)) if ongoing else {}
        if not preserve_throttles and not list_reassignments(client):
            clear_throttles(client, {one.topic for one in asked})
    if not ongoing:
        say("None of the specified partition reassignments are active.")
    _report(outcomes, "Successfully cancelled partition reassignments for {}")


@app.command("list")
def list_command(
    partitions: _Partitions = None,
    how: FormatOption = None,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show the partitions whose replicas are being moved, and how much of them is copied.

    \b
    For example:
      tidelog reassign list
      tidelog reassign list orders --format table
    """
    with admin_client(bootstrap, client_file) as client:
        asked = find_partitions(client.cluster(), partitions or [])
        found = look(client, asked or None, {})
    show_ongoing([one for one in found if one.ongoing is not None], how or Format.text)


def _brokers(cluster: Cluster, listed: str | None, *, with_racks: bool) -> list[BrokerInfo]:
    numbers = sorted(cluster.brokers) if listed is None else parse_brokers(listed, "--broker-list")
    missing = [number for number in numbers if number not in cluster.brokers]
    if missing:
        raise BadValue(f"--broker-list {listed}: there is no broker {missing[0]} in the cluster")
    return [
        BrokerInfo(
            broker_id=number,
            endpoints={},
            rack=cluster.brokers[number].rack if with_racks else None,
        )
        for number in numbers
    ]


def _plan(cluster: Cluster, words: Sequence[str], replicas: str | None, file: Path | None) -> Plan:
    if file is not None and (words or replicas is not None):
        raise BadValue("name partitions and --replicas, or a file with a plan, not both")
    if file is not None:
        return read_plan(file)
    if not words or replicas is None:
        raise BadValue(
            "say what to move: TOPIC[:PARTITION] --replicas 1,2,3, or --reassignment-json-file"
        )
    return plan_of_words(cluster, words, parse_brokers(replicas, "--replicas"))


def _wait(client: Client, found: list[Progress], plan: Plan) -> list[Progress]:
    """Looks again and again; who looks on at a terminal sees how far it is."""
    said = ""
    while any(one.ongoing is not None for one in found):
        if summary(found) != said:
            said = summary(found)
            remark(said)
        pause_ms(_LOOK_EVERY_MS)
        found = look(client, [one.partition for one in found], plan)
    return found


def _report(outcomes: Outcomes, done: str) -> None:
    good = [str(one) for one, error in sorted(outcomes.items()) if error is None]
    if good:
        say(done.format(",".join(good)))
    bad: dict[TopicPartition, Any] = {one: error for one, error in outcomes.items() if error}
    for one, error in sorted(bad.items()):
        complain(f"{one}: {error}")
    if bad:
        raise typer.Exit(1)
