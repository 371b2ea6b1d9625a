"""`tidelog reassign` and `tidelog elect-leaders` against a server: in words and in Kafka's flags
(T3, E4). One broker has nowhere to move anything to; what can be seen of the commands there is
seen here."""

import json
from pathlib import Path

import pytest

from support.command_line import run
from support.servers import Server
from tidelog.client.client import Client


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


@pytest.fixture
def broker(shared_server: Server) -> int:
    """The number of the one there is."""
    with Client(shared_server.address) as client:
        (number,) = client.cluster().brokers
    return number


def reassign(*arguments: str) -> tuple[int, str, str]:
    return run("reassign", *arguments)


def made(name: str, partitions: int = 1) -> str:
    assert run("topics", "create", name, "-p", str(partitions))[0] == 0
    return name


def plan(folder: Path, topic: str, broker: int) -> tuple[Path, str]:
    """A file, and what is in it."""
    text = (
        f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,'
        f'"replicas":[{broker}],"log_dirs":["any"]}}]}}'
    )
    file = folder / "plan.json"
    file.write_text(text)
    return file, text


def test_a_move_to_where_it_is_begins_and_is_done(tmp_path: Path, broker: int) -> None:
    topic = made("stays")
    file, text = plan(tmp_path, topic, broker)
    status, out, err = reassign("--execute", "--reassignment-json-file", str(file))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "Current partition replica assignment",
        "",
        text,
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        f"Successfully started partition reassignments for {topic}-0",
    ]
    assert reassign("verify", "--file", str(file), "--wait") == (
        0,
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is completed.\n",
        "",
    )


def test_words_do_the_same_as_a_file(broker: int) -> None:
    topic = made("moved-in-words", partitions=2)
    status, out, _ = reassign("execute", topic, "--replicas", str(broker))
    assert status == 0
    assert out.splitlines()[-1] == (
        f"Successfully started partition reassignments for {topic}-0,{topic}-1"
    )
    assert reassign("verify", f"{topic}:1")[1].splitlines()[1:] == [
        f"Reassignment of partition {topic}-1 is completed."
    ]
    (shown,) = json.loads(reassign("verify", f"{topic}:1", "--json")[1])
    assert (shown["topic"], shown["partition"], shown["status"]) == (topic, 1, "done")
    assert shown["replicas"] == [broker]


def test_where_nothing_moves_nothing_is_listed_or_cancelled(tmp_path: Path, broker: int) -> None:
    topic = made("at-rest")
    file, _ = plan(tmp_path, topic, broker)
    assert reassign("list") == (0, "No partition reassignments found.\n", "")
    assert json.loads(reassign("--list", "--json")[1]) == []
    assert reassign("list", topic, "--format", "table")[1].split() == (
        ["TOPIC", "PARTITION", "STATUS", "REPLICAS", "ADDING", "REMOVING", "COPIED"]
    )
    for what in (("--cancel", "--reassignment-json-file", str(file)), ("cancel", topic)):
        none = (0, "None of the specified partition reassignments are active.\n", "")
        assert reassign(*what) == none


def test_a_plan_is_proposed_in_the_layout_of_kafka(tmp_path: Path, broker: int) -> None:
    topic = made("proposed")
    _, text = plan(tmp_path, topic, broker)
    (tmp_path / "topics.json").write_text(f'{{"version":1,"topics":[{{"topic":"{topic}"}}]}}')
    flags = ("--topics-to-move-json-file", str(tmp_path / "topics.json"))
    expected = [
        "Current partition replica assignment",
        text,
        "",
        "Proposed partition reassignment configuration",
        text,
    ]
    status, out, err = reassign("--generate", *flags, "--broker-list", str(broker))
    assert (status, out.splitlines(), err) == (0, expected, "")
    assert reassign("generate", topic)[1].splitlines() == expected


def test_a_plan_that_was_not_carried_out_is_told(tmp_path: Path) -> None:
    topic = made("not-moved")
    file, _ = plan(tmp_path, topic, 99)
    status, out, _ = reassign("verify", "--file", str(file))
    assert status == 1
    assert out.splitlines()[1].startswith(
        f"There is no active reassignment of partition {topic}-0, but replica set is "
    )
    assert out.endswith(" rather than 99.\n")


def test_a_broker_that_is_not_there_is_refused(tmp_path: Path) -> None:
    topic = made("nowhere-to-go")
    file, _ = plan(tmp_path, topic, 99)
    status, _, err = reassign("execute", "--file", str(file))
    assert status == 1
    assert err.startswith(f"tidelog: {topic}-0: INVALID_REPLICA_ASSIGNMENT: ")
    status, _, err = reassign("generate", topic, "--broker-list", "99")
    assert (status, err) == (
        1,
        "tidelog: --broker-list 99: there is no broker 99 in the cluster\n",
    )


def test_a_speed_limit_goes_when_all_is_done(broker: int) -> None:
    topic = made("limited")
    rate = "leader.replication.throttled.rate"
    replicas = "follower.replication.throttled.replicas"
    assert run("configs", "set", "broker", str(broker), f"{rate}=1000")[0] == 0
    assert run("configs", "set", "topic", topic, f"{replicas}=0:9")[0] == 0
    assert reassign("verify", topic, "--preserve-throttles")[1].splitlines()[2:] == []
    assert reassign("verify", topic)[1].splitlines()[2:] == [
        f"Clearing broker-level throttles on brokers {broker}",
        f"Clearing topic-level throttles on topics {topic}",
    ]
    assert rate not in run("configs", "describe", "broker", str(broker))[1]
    assert replicas not in run("configs", "describe", "topic", topic)[1]
    assert reassign("verify", topic)[1].splitlines()[2:] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("execute", "say what to move: TOPIC[:PARTITION] --replicas 1,2,3, or"),
        ("execute t", "say what to move"),
        ("execute t --replicas 1 --file plan.json", "name partitions and --replicas, or a file"),
        ("execute unknown --replicas 0", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic unknown"),
        ("cancel", "name a topic or a partition, or a plan"),
        ("generate", "name a topic, or a file"),
        ("verify --file no-such.json", "no-such.json: No such file or directory; check the name"),
        ("list unknown", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic unknown"),
        ("--list --zookeeper localhost:2181", "--zookeeper: commands talk to brokers"),
    ],
)
def test_a_mistake_is_one_line_and_status_1(arguments: str, message: str) -> None:
    status, out, err = reassign(*arguments.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("action", ["generate", "execute", "verify", "cancel", "list"])
def test_every_action_has_help_with_examples(action: str) -> None:
    assert reassign(action, "--help") == reassign(f"--{action}", "--help")
    assert f"\n    tidelog reassign {action}" in reassign(action, "--help")[1]


# -- elections


def test_a_preferred_leader_is_told_to_be_there_already() -> None:
    topic = made("led-well", partitions=2)
    said = f"Valid replica already elected for partitions {topic}-0, {topic}-1\n"
    assert run("elect-leaders", topic) == (0, said, "")
    flags = ("--election-type", "PREFERRED", "--topic", topic, "--partition", "1")
    said = f"Valid replica already elected for partitions {topic}-1\n"
    assert run("elect-leaders", *flags) == (0, said, "")
    assert run("elect-leaders", "--all-topic-partitions") == (
        0,
        "Valid replica already elected for all partitions\n",
        "",
    )


def test_partitions_to_elect_leaders_for_come_from_a_file(tmp_path: Path) -> None:
    topic = made("led-by-file")
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    flags = ("--election-type", "unclean", "--path-to-json-file", str(file))
    (shown,) = json.loads(run("elect-leaders", *flags, "--json")[1])
    assert (shown["topic"], shown["partition"]) == (topic, 0)
    assert shown["error"] == "ELECTION_NOT_NEEDED"
    table = run("elect-leaders", *flags, "--format", "table")[1].splitlines()
    assert table[0].split() == ["TOPIC", "PARTITION", "OUTCOME"]


def test_a_partition_that_is_not_there_has_no_election(tmp_path: Path) -> None:
    topic = made("led-in-part")
    file = tmp_path / "partitions.json"
    rows = [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 7}]
    file.write_text(json.dumps({"partitions": rows}))
    status, out, err = run("elect-leaders", "--file", str(file))
    assert (status, out) == (1, f"Valid replica already elected for partitions {topic}-0\n")
    assert err.startswith(
        f"tidelog: leader election (PREFERRED) for partition {topic}-7: UNKNOWN_TOPIC_OR_PARTITION"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[", "is not JSON"),
        ("{}", 'must be {"partitions": '),
        ('{"partitions": [{"topic": "t"}]}', "must have topic and partition"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(content)
    status, out, err = run("elect-leaders", "--file", str(file))
    assert (status, out) == (1, "")
    assert why in err


@pytest.mark.parametrize("arguments", ["", "t --all", "--all --file x.json", "--partition 3"])
def test_partitions_are_named_in_one_way(arguments: str) -> None:
    status, out, err = run("elect-leaders", *arguments.split())
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
