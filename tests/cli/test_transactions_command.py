"""`tidelog transactions` against a server: seen, described, and aborted where they hang (A4)."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Producer

from support.command_line import run
from support.servers import Server, new_server
from tidelog.base.errors import ErrorCode
from tidelog.client import apis
from tidelog.client.apis import limited
from tidelog.client.client import Client
from tidelog.records.reference import Record, encode_batch

SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "transaction.partition.verification.enable": "false",
}
"""Without verification a transaction can be opened behind its coordinator's back."""
GHOST = 424_242
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = new_server(tmp_path_factory.mktemp("transactions"), SETTINGS)
    try:
        one.start()
        yield one
    finally:
        one.close()


@pytest.fixture(autouse=True)
def _bootstrap(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", server.address)


def rows(*arguments: str) -> list[dict[str, Any]]:
    status, out, err = run("transactions", *arguments, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, list)
    return found


def made(topic: str) -> str:
    assert run("topics", "create", topic, "-p", "1", "-c", "retention.ms=-1")[0] == 0
    return topic


def settings(server: Server, name: str) -> dict[str, Any]:
    return {"bootstrap.servers": server.address, "transactional.id": name, "log_level": 0}


def opened(server: Server, name: str, topic: str) -> Any:
    """A producer with a transaction that has written one record."""
    producer = Producer(settings(server, name))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    return producer


def hang(server: Server, topic: str) -> None:
    """A transaction that no coordinator knows of."""
    batch = encode_batch(
        [Record(offset=0, timestamp=LONG_AGO_MS, key=None, value=b"ghost")],
        producer_id=GHOST,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    partition = {"index": 0, "records": bytes(batch)}
    values = {
        "transactional_id": "ghost",
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    with Client(server.address) as client:
        answer = client.ask(limited(apis.PRODUCE, 9), values, client.cluster().controller_id)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def settled(name: str, state: str) -> dict[str, Any]:
    """What is said of a transactional id once its markers are written."""
    deadline = monotonic() + 30
    while True:
        (row,) = rows("describe", name)
        if row["state"] == state:
            return row
        assert monotonic() < deadline, f"{name} is {state}, not {row['state']}"


def committed_lines(topic: str) -> list[str]:
    flags = ("--from-beginning", "--exit", "--isolation-level", "read_committed")
    status, out, _ = run("consume", topic, *flags)
    assert status == 0
    return out.split()


def test_transactions_are_listed_by_state_and_producer(server: Server) -> None:
    producer = opened(server, "listed-1", made("listed"))
    done = opened(server, "listed-2", "listed")
    done.commit_transaction()
    settled("listed-2", "CompleteCommit")
    found = {row["transactional_id"]: row for row in rows("list")}
    assert found["listed-1"]["state"] == "Ongoing"
    assert found["listed-2"]["state"] == "CompleteCommit"
    ongoing = [row["transactional_id"] for row in rows("list", "--state", "Ongoing")]
    assert "listed-1" in ongoing
    assert "listed-2" not in ongoing
    number = str(found["listed-1"]["producer_id"])
    assert rows("list", "--producer-id", number) == [found["listed-1"]]
    assert rows("list", "--transactional-id-pattern", "listed-[2-9]") == [found["listed-2"]]
    assert rows("list", "--state", "Ongoing", "--duration-filter", "3600000") == []
    status, out, _ = run("transactions", "list")
    assert status == 0
    assert out.splitlines()[0].split() == [
        *("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    ]
    producer.abort_transaction()


def test_an_open_transaction_is_described_with_its_partitions(server: Server) -> None:
    producer = opened(server, "described-1", made("described"))
    (row,) = rows("describe", "described-1")
    assert (row["state"], row["partitions"]) == ("Ongoing", ["described-0"])
    assert 0 <= row["duration_ms"] < 600_000
    (writer,) = rows("describe", "--topic", "described", "--partition", "0")
    assert (writer["producer_id"], writer["start_offset"]) == (row["producer_id"], 0)
    same = rows("describe-producers", "--topic", "described", "--partition", "0")
    assert same == [writer]
    producer.abort_transaction()
    assert settled("described-1", "CompleteAbort")["partitions"] == []
    assert rows("describe", "--transactional-id", "described-1")[0]["state"] == "CompleteAbort"


def test_an_id_that_never_began_one_is_described_too(server: Server) -> None:
    producer = Producer(settings(server, "idle"))
    producer.init_transactions(30)
    (row,) = rows("describe", "idle")
    assert (row["state"], row["start_ms"], row["duration_ms"]) == ("Empty", None, None)
    line = run("transactions", "describe", "idle")[1].splitlines()[1].split("\t")
    assert [cell.strip() for cell in line[6:9]] == ["None", "None", ""]


def test_a_hanging_transaction_is_found_and_aborted(server: Server) -> None:
    """A4: readers of committed records go on behind it. The first time nothing is changed."""
    hang(server, made("haunted"))
    assert run("produce", "haunted", "behind")[0] == 0
    assert committed_lines("haunted") == []
    (row,) = rows("find-hanging", "haunted")
    assert (row["producer_id"], row["producer_epoch"], row["start_offset"]) == (GHOST, 3, 0)
    abort = ("transactions", "abort", "haunted:0", "--start-offset", "0")
    said = f"the transaction of producer {GHOST}, epoch 3, that begins at offset 0 of haunted-0."
    assert run(*abort) == (0, f"Would abort {said}\n", "")
    assert committed_lines("haunted") == []
    assert run(*abort, "--execute") == (0, f"Aborted {said}\n", "")
    assert committed_lines("haunted") == ["behind"]
    assert rows("find-hanging", "haunted") == []
    status, _, err = run(*abort, "--execute")
    assert (status, err) == (
        1,
        "tidelog: INVALID_TXN_STATE: no transaction with start offset 0 is open in haunted-0\n",
    )


def test_a_transaction_that_its_coordinator_knows_does_not_hang(server: Server) -> None:
    producer = opened(server, "alive-1", made("alive"))
    assert rows("find-hanging", "--topic", "alive", "--max-transaction-timeout", "0") == []
    (row,) = rows("describe", "alive-1")
    flags = ("--topic", "alive", "--partition", "0", "--producer-id", str(row["producer_id"]))
    status, out, err = run("transactions", "abort", *flags)
    assert (status, out[:11]) == (0, "Would abort")
    assert err == (
        "tidelog: it does not hang: transactional id alive-1 is in state Ongoing, and its "
        "coordinator will end it\n"
    )
    producer.commit_transaction()
    settled("alive-1", "CompleteCommit")
    assert committed_lines("alive") == ["open"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("list --state Bogus", "INVALID_REQUEST: transactions have no state Bogus"),
        ("describe", "name a transactional id, or --topic and --partition"),
        ("describe x --topic t", "x and --topic: give one of them"),
        ("describe nobody", "TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id nobody"),
        ("describe --partition 0", "--partition: say of which --topic"),
        ("describe-producers --topic wide", "name one partition: TOPIC:PARTITION, or --topic"),
        ("describe-producers --topic wide --partition 7", "UNKNOWN_TOPIC_OR_PARTITION: there is"),
        ("abort wide:0", "say which: --start-offset N, or --producer-id ID"),
        ("abort --start-offset 0", "name one partition: TOPIC:PARTITION, or --topic"),
        ("abort wide:0 --producer-id 9", "INVALID_TXN_STATE: no transaction with producer id 9"),
        ("find-hanging nowhere", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic nowhere"),
    ],
)
def test_a_mistake_with_transactions_is_one_line(arguments: str, message: str) -> None:
    run("topics", "create", "wide", "-p", "2")
    status, out, err = run("transactions", *arguments.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1
