"""`tidelog transactions`: list and describe them, and abort those that nobody will end."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.admin import CommandConfig, admin_client
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, ActionFirst, Bootstrap
from tidelog.cli.printing import Format, FormatOption, JsonOption, complain, remark, say
from tidelog.cli.reassign_plan import find_partitions, partition_of
from tidelog.cli.transaction_view import (
    show_described,
    show_hanging,
    show_listed,
    show_producers,
)
from tidelog.client.client import Client
from tidelog.client.hanging import Search, find_hanging, is_known, known_transactions, leaderless
from tidelog.client.transactions import (
    ActiveProducer,
    Transaction,
    TransactionFilter,
    abort_in_partition,
    describe_producers,
    describe_transactions,
    list_transactions,
)

_MS_PER_MINUTE: Final = 60_000
_TIMEOUT_MINUTES: Final = 15
"""The longest that brokers let a transaction take, if `transaction.max.timeout.ms` is as usual."""

app = typer.Typer(cls=ActionFirst, no_args_is_help=True, rich_markup_mode=None)

_Place = Annotated[
    str | None, typer.Argument(metavar="TOPIC:PARTITION", help="The partition it is open in.")
]
_TopicFlag = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic.")]
_PartitionFlag = Annotated[
    int | None, typer.Option("--partition", metavar="N", min=0, help="Its number.")
]
_BrokerFlag = Annotated[
    int | None, typer.Option("--broker-id", metavar="ID", help="As this replica has it.")
]


@app.callback()
def transactions() -> None:
    """Look at transactions, and abort those that hang.

    \b
    For example:
      tidelog transactions list
      tidelog transactions describe loader-1
      tidelog transactions describe --topic orders --partition 0
    Readers of committed records stop where a transaction is open. One that hangs stays open for
    ever, since its coordinator does not know of it:
      tidelog transactions find-hanging --topic orders
      tidelog transactions abort orders:0 --start-offset 42 --execute
    """


@app.command("list")
def list_command(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Such as Ongoing; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Of a producer; may be repeated.")
    ] = None,
    duration: Annotated[
        int, typer.Option("--duration-filter", metavar="MS", help="Open for longer than this.")
    ] = -1,
    pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", metavar="RE", help="With such an id."),
    ] = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show the transactional ids that coordinators know, and their states.

    \b
    For example:
      tidelog transactions list --state Ongoing
      tidelog transactions list --duration-filter 60000
    """
    wanted = TransactionFilter(
        states=[one.strip() for part in state or () for one in part.split(",")],
        producer_ids=producer_id or (),
        duration_ms_min=max(-1, duration),
        pattern=pattern,
    )
    with admin_client(bootstrap, client_file) as client:
        found = list_transactions(client, wanted)
    show_listed(found, _form(how, as_json))


@app.command("describe")
def describe_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Transactional ids.")
    ] = None,
    transactional_id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="The same.")
    ] = None,
    topic: _TopicFlag = None,
    partition: _PartitionFlag = None,
    broker: _BrokerFlag = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show the transactions of some transactional ids, or the producers of a partition.

    \b
    For example:
      tidelog transactions describe loader-1
      tidelog transactions describe --topic orders --partition 0
    """
    wanted = [*(names or ()), *(transactional_id or ())]
    if topic is not None or partition is not None:
        if wanted:
            raise BadValue(f"{wanted[0]} and --topic: give one of them")
        describe_producers_command(topic, partition, broker, how, as_json, bootstrap, client_file)
        return
    if not wanted:
        raise BadValue("name a transactional id, or --topic and --partition")
    with admin_client(bootstrap, client_file) as client:
        outcomes = describe_transactions(client, wanted)
    found = [one for one in outcomes.values() if isinstance(one, Transaction)]
    errors = [one for one in outcomes.values() if isinstance(one, KafkaError)]
    if found:
        show_described(found, _now_ms(), _form(how, as_json))
    for error in errors:
        complain(error)
    if errors:
        raise typer.Exit(1)


@app.command("describe-producers")
def describe_producers_command(
    topic: _TopicFlag = None,
    partition: _PartitionFlag = None,
    broker: _BrokerFlag = None,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show the producers of a partition, and the transactions they have open there.

    \b
    For example:
      tidelog transactions describe-producers --topic orders --partition 0
    """
    with admin_client(bootstrap, client_file) as client:
        one = _partition(client, None, topic, partition)
        found = _producers(client, one, broker)
    show_producers(found, _form(how, as_json))


@app.command("abort")
def abort_command(
    place: _Place = None,
    topic: _TopicFlag = None,
    partition: _PartitionFlag = None,
    start_offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Where it begins.")
    ] = None,
    producer_id: Annotated[int | None, typer.Option(metavar="ID", help="Or whose it is.")] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(metavar="N", help="And in which epoch.")
    ] = None,
    coordinator_epoch: Annotated[int | None, typer.Option(hidden=True)] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it, not only show it.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Abort a transaction in a partition where it hangs. Without --execute nothing changes.

    Only for one that `find-hanging` shows: of another one, what was written to other partitions
    may still be committed.

    \b
    For example:
      tidelog transactions abort orders:0 --start-offset 42
      tidelog transactions abort orders:0 --producer-id 7 --execute
    """
    if start_offset is None and producer_id is None:
        raise BadValue("say which: --start-offset N, or --producer-id ID")
    asked = {
        "start_offset": start_offset,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
    with admin_client(bootstrap, client_file) as client:
        one = _partition(client, place, topic, partition)
        producer = _open_one(client, one, asked)
        if coordinator_epoch is not None:
            producer = replace(producer, coordinator_epoch=coordinator_epoch)
        if execute:
            abort_in_partition(client, one, producer)
    say(
        f"{'Aborted' if execute else 'Would abort'} the transaction of producer "
        f"{producer.producer_id}, epoch {producer.producer_epoch}, that begins at offset "
        f"{producer.start_offset} of {one}."
    )
    if not execute:
        remark("Nothing was changed: --execute does it.")


@app.command("find-hanging")
def find_hanging_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:PARTITION]", help="Where to look. [default: everywhere]"),
    ] = None,
    topic: _TopicFlag = None,
    partition: _PartitionFlag = None,
    broker: _BrokerFlag = None,
    timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="The longest that a transaction may take.",
        ),
    ] = _TIMEOUT_MINUTES,
    how: FormatOption = None,
    as_json: JsonOption = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    client_file: CommandConfig = None,
) -> None:
    """Show transactions that are open in a partition though nobody will end them there.

    \b
    For example:
      tidelog transactions find-hanging
      tidelog transactions find-hanging orders --max-transaction-timeout 60
    """
    asked = [*(words or ()), *_words(topic, partition)]
    with admin_client(bootstrap, client_file) as client:
        cluster = client.cluster()
        partitions = find_partitions(cluster, asked or cluster.topics)
        if broker is not None:
            partitions = [
                one for one in partitions if broker in partition_of(cluster, one).replicas
            ]
        before_ms = _now_ms() - timeout * _MS_PER_MINUTE
        search = Search(partitions=partitions, broker=broker, before_ms=before_ms)
        found = find_hanging(client, search)
    show_hanging(found, _now_ms(), _form(how, as_json))


def _form(how: Format | None, as_json: bool) -> Format:
    return Format.json if as_json else how or Format.text


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _words(topic: str | None, partition: int | None) -> list[str]:
    if topic is None:
        if partition is not None:
            raise BadValue("--partition: say of which --topic")
        return []
    return [topic if partition is None else f"{topic}:{partition}"]


def _partition(
    client: Client, place: str | None, topic: str | None, partition: int | None
) -> TopicPartition:
    words = [*([] if place is None else [place]), *_words(topic, partition)]
    found = find_partitions(client.cluster(), words)
    if len(words) != 1 or len(found) != 1:
        raise BadValue("name one partition: TOPIC:PARTITION, or --topic and --partition")
    return found[0]


def _producers(client: Client, one: TopicPartition, broker: int | None) -> list[ActiveProducer]:
    found = describe_producers(client, [one], broker)[one]
    if isinstance(found, KafkaError):
        raise found
    return found


def _open_one(
    client: Client, one: TopicPartition, asked: Mapping[str, int | None]
) -> ActiveProducer:
    """The one that was meant; whether it hangs is said, and not insisted on."""
    said = {name: value for name, value in asked.items() if value is not None}
    for producer in _producers(client, one, None):
        is_meant = all(getattr(producer, name) == value for name, value in said.items())
        if is_meant and producer.start_offset is not None:
            known = known_transactions(client, {one: [producer]})
            if is_known(known, one, producer):
                transaction = known[producer.producer_id]
                complain(
                    f"it does not hang: transactional id {transaction.transactional_id} is in "
                    f"state {transaction.state}, and its coordinator will end it"
                )
            elif missing := leaderless(client):
                complain(f"it may not hang: nobody leads {missing[0]}, where it may be known")
            return producer
    wanted = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in said.items())
    raise KafkaError(ErrorCode.invalid_txn_state, f"no transaction with {wanted} is open in {one}")
