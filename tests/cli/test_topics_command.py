"""`tidelog topics` against a server: in words and in Kafka's flags (T3, T5, T6)."""

import json

import pytest
from typer.testing import CliRunner

from support.servers import Server
from tidelog.cli.main import app


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["topics", *arguments], prog_name="tidelog")
    return result.exit_code, result.stdout, result.stderr


def described(topic: str) -> dict[str, object]:
    (found,) = json.loads(run("describe", topic, "--json")[1])
    assert isinstance(found, dict)
    return found


def test_words_make_describe_enlarge_and_delete_a_topic() -> None:
    assert run("create", "words", "-p", "2", "--config", "retention.ms=1000") == (
        0,
        "Created topic words.\n",
        "",
    )
    status, out, err = run("describe", "words")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].endswith(
        "PartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=1000"
    )
    assert out.splitlines()[1:] == [
        "\tTopic: words\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
        "\tTopic: words\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0",
    ]
    assert run("alter", "words", "--partitions", "3") == (0, "Topic words has 3 partitions.\n", "")
    assert described("words")["partition_count"] == 3
    assert run("delete", "words") == (0, "Deleted topic words.\n", "")
    assert "words" not in run("list")[1].split()


def test_flags_of_kafka_do_the_same(shared_server: Server) -> None:
    where = ("--bootstrap-server", shared_server.address)
    made = (
        *where,
        "--create",
        "--topic",
        "flags",
        "--partitions",
        "2",
        "--replication-factor",
        "1",
    )
    assert run(*made) == (0, "Created topic flags.\n", "")
    assert "flags" in run(*where, "--list")[1].split()
    assert run("--list", "--topic", "fl.*s", *where)[1] == "flags\n"
    assert "PartitionCount: 2" in run("--describe", "--topic", "flags")[1]
    assert run("--alter", "--topic", "flags", "--partitions", "4")[0] == 0
    assert described("flags")["partition_count"] == 4
    assert run("--topic", "flags", "--delete")[0] == 0
    assert run("--describe", "--topic", "flags")[0] == 1


def test_a_topic_may_have_the_name_of_an_action() -> None:
    assert run("create", "list", "delete")[0] == 0
    assert run("--topic", "delete", "list") == (0, "delete\n", "")
    assert run("-b", "127.0.0.1:1", "--topic=delete", "list")[0] == 1
    status, _, err = run("list", "--delete")
    assert status == 2
    assert "No such option" in err
    assert {"list", "delete"} <= set(run("list")[1].split()), "nothing was deleted"
    assert run("--topic", "list", "--delete") == (0, "Deleted topic list.\n", "")
    assert run("--delete", "--topic", "delete") == (0, "Deleted topic delete.\n", "")


def test_replicas_can_be_assigned_when_made_and_when_enlarged() -> None:
    """T3: as in Kafka, the assignment of an alteration lists all partitions."""
    assert run("create", "pinned", "--replica-assignment", "0,0")[0] == 0
    assert run("alter", "pinned", "-p", "3", "--replica-assignment", "0,0,0")[0] == 0
    assert described("pinned")["partition_count"] == 3
    status, _, err = run("create", "unpinned", "--replica-assignment", "0:9")
    assert status == 1
    assert err.startswith("tidelog: INVALID_REPLICA_ASSIGNMENT: ")
    status, _, err = run("create", "both", "--replica-assignment", "0", "-p", "1")
    assert (status, len(err.splitlines())) == (1, 1)


def test_what_is_there_already_or_not_at_all_can_be_passed_over() -> None:
    run("create", "there")
    assert run("create", "there") == (
        1,
        "",
        "tidelog: TOPIC_ALREADY_EXISTS: the topic there exists already\n",
    )
    assert run("create", "there", "--if-not-exists") == (0, "", "")
    for action in (("delete",), ("describe",), ("alter", "-p", "9")):
        status, out, err = run(*action, "missing")
        assert (status, out) == (1, "")
        assert err == "tidelog: UNKNOWN_TOPIC_OR_PARTITION: there is no topic missing\n"
        assert run(*action, "missing", "--if-exists") == (0, "", "")


def test_one_bad_topic_of_several_does_not_hide_the_others() -> None:
    status, out, err = run("create", "good", "bad/name")
    assert (status, out) == (1, "Created topic good.\n")
    assert err.startswith("tidelog: INVALID_TOPIC_EXCEPTION: ")


def test_filters_of_a_healthy_node_show_only_what_they_name() -> None:
    """T5: with one replica of one, every partition is at its minimum and none is below it."""
    run("create", "healthy")
    for name in ("under-replicated", "unavailable", "under-min-isr"):
        assert run("describe", f"--{name}-partitions") == (0, "", "")
    status, out, _ = run("--describe", "--at-min-isr-partitions", "--topic", "healthy")
    assert (status, out) == (0, "\tTopic: healthy\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n")


def test_topics_with_settings_of_their_own_are_found() -> None:
    run("create", "plain")
    run("create", "special", "--config", "segment.ms=60000")
    out = run("describe", "--topics-with-overrides")[1]
    names = [line.split("\t")[0] for line in out.splitlines()]
    assert "Topic: special" in names
    assert "Topic: plain" not in names


def test_a_topic_is_found_by_its_id() -> None:
    run("create", "known-by-id")
    topic_id = str(described("known-by-id")["topic_id"])
    assert "Topic: known-by-id\t" in run("describe", "--topic-id", topic_id)[1]


def test_lists_come_as_lines_tables_and_json() -> None:
    run("create", "listed", "-p", "2")
    assert run("list", "listed")[1] == "listed\n"
    assert run("list", "listed", "--format", "table")[1].splitlines() == [
        "TOPIC   PARTITIONS  REPLICATION",
        "listed  2           1",
    ]
    assert json.loads(run("list", "listed", "--json")[1]) == ["listed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--list --zookeeper localhost:2181", "--zookeeper: commands talk to brokers: use --boot"),
        ("list --zookeeper=localhost:2181", "--zookeeper: commands talk to brokers: use --boot"),
        ("create", "name a topic to create: tidelog topics create NAME"),
        ("delete", "name a topic, or several"),
        ("create x --config a", "--config a: must be NAME=VALUE"),
        ("create x --config nope=1", "INVALID_CONFIG: "),
        ("create x --replication-factor 3", "INVALID_REPLICATION_FACTOR: "),
        ("list -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused: is the server "),
        ("list -b nonsense:port", "bootstrap server nonsense:port: must be HOST:PORT"),
        ("describe --topic a(", "--topic a(: is no regular expression"),
    ],
)
def test_a_mistake_is_one_line_and_status_1(arguments: str, message: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", ["list --partitions 3", "create x -p 0", "alter x", "lst"])
def test_options_that_do_not_belong_are_refused_with_the_usage(arguments: str) -> None:
    status, _, err = run(*arguments.split())
    assert status == 2
    assert err.startswith("Usage: tidelog topics")


@pytest.mark.parametrize("action", ["list", "create", "describe", "alter", "delete"])
def test_every_action_has_help_with_examples(action: str) -> None:
    assert run(action, "--help") == run(f"--{action}", "--help")
    assert f"\n    tidelog topics {action}" in run(action, "--help")[1]
