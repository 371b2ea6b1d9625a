"""`tidelog groups` and `consume --group` against a server, in words and in Kafka's flags (A5)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from support.command_line import run
from support.servers import Server, new_server
from tidelog.base.ids import TopicPartition
from tidelog.cli import reset_target
from tidelog.cli.reset_target import Target, resolve
from tidelog.client.client import Client
from tidelog.client.offsets import commit_offsets, committed_offsets, list_many_offsets
from tidelog.client.topics import NewTopic, create_topics

START_MS = int(time() * 1000) - 3_600_000
"""Of the first record; one follows each second, in all partitions at once."""
SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With `orders`, 20 and 10 records in its partitions, and `users`, which has none."""
    one = new_server(tmp_path_factory.mktemp("groups"), SETTINGS)
    try:
        one.start()
        with Client(one.address) as client:
            topics = [NewTopic(name="orders", partition_count=2), NewTopic(name="users")]
            assert not any(create_topics(client, topics).values())
        producer = Producer({"bootstrap.servers": one.address})
        for number in range(20):
            when = START_MS + number * 1000
            for partition in (0, 1) if number < 10 else (0,):
                producer.produce("orders", b"x", partition=partition, timestamp=when)
        assert producer.flush(30) == 0
        yield one
    finally:
        one.close()


@pytest.fixture(autouse=True)
def _bootstrap(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", server.address)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


def cells(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def offsets_of(client: Client, group: str) -> dict[str, int]:
    return {str(one): offset for one, offset in committed_offsets(client, group).items()}


@contextmanager
def member(server: Server, group: str, **settings: str) -> Iterator[Any]:
    """A consumer that has been given what it reads."""
    usual = {"bootstrap.servers": server.address, "client.id": "reader", "log_level": 0}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer({**usual, "group.id": group, "enable.auto.commit": False, **given})
    try:
        consumer.subscribe(["orders"])
        deadline = monotonic() + 30
        while not consumer.assignment():
            assert monotonic() < deadline, "it was given something to read"
            consumer.poll(0.05)
        yield consumer
    finally:
        consumer.close()


def test_groups_are_listed_with_their_states_and_types(client: Client) -> None:
    commit_offsets(client, "listed", {("orders", 0): 1})
    assert ["listed"] in cells(run("groups", "list")[1])
    assert cells(run("groups", "list", "--state")[1])[0] == ["GROUP", "STATE"]
    shown = cells(run("groups", "--list", "--state", "--type")[1])
    assert ["listed", "Classic", "Empty"] in shown
    assert ["listed", "Empty"] in cells(run("groups", "list", "--state", "empty,Dead")[1])
    assert run("groups", "list", "--state", "Stable")[1] == "GROUP                     STATE\n"
    rows = json.loads(run("groups", "list", "--type", "classic", "--json")[1])
    (row,) = [row for row in rows if row["group"] == "listed"]
    assert (row["state"], row["type"]) == ("Empty", "Classic")
    table = cells(run("groups", "list", "--format", "table")[1])
    assert ["listed", "Classic", "Empty", str(row["coordinator"])] in table


def test_a_group_without_members_is_described_with_its_lag(client: Client) -> None:
    commit_offsets(client, "lagging", {("orders", 0): 15, ("orders", 1): 10})
    status, out, err = run("groups", "describe", "lagging")
    assert (status, err) == (0, "tidelog: group lagging has no active members\n")
    assert out == (
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG"
        "             CONSUMER-ID     HOST            CLIENT-ID\n"
        "lagging         orders          0          15              20              5"
        "               -               -               -\n"
        "lagging         orders          1          10              10              0"
        "               -               -               -\n"
    )
    assert run("groups", "--describe", "--group", "lagging", "--offsets") == (status, out, err)
    (group,) = json.loads(run("groups", "describe", "lagging", "--json")[1])
    assert [(one["partition"], one["lag"]) for one in group["partitions"]] == [(0, 5), (1, 0)]
    assert run("groups", "describe", "lagging", "--members") == (0, "", err)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_described_with_what_they_read(server: Server, protocol: str) -> None:
    """In the classic protocol and in the newer one."""
    group = f"alive-{protocol}"
    with member(server, group, group_protocol=protocol) as consumer:
        who = consumer.memberid()
        lines = cells(run("groups", "describe", group)[1])
        assert [line[:6] + line[8:] for line in lines[1:]] == [
            [group, "orders", "0", "-", "20", "-", "reader"],
            [group, "orders", "1", "-", "10", "-", "reader"],
        ]
        assert [line[6:7] for line in lines[1:]] == [[who], [who]]
        (heading, row) = cells(run("groups", "describe", group, "--members", "--verbose")[1])
        said = dict(zip(heading, row, strict=True))
        assert (said["#PARTITIONS"], said["CURRENT-ASSIGNMENT"]) == ("2", "orders:0,1")
        is_newer = protocol == "consumer"
        assert said["TARGET-ASSIGNMENT"] == ("orders:0,1" if is_newer else "-")
        (heading, row) = cells(run("groups", "describe", group, "--state")[1])
        assert row[0] == group
        assert row[-3:] == ["uniform" if is_newer else "range", "Stable", "1"]
        (found,) = json.loads(run("groups", "describe", group, "--json")[1])
        assert [one["consumer_id"] for one in found["members"]] == [who]
        assert found["type"].lower() == protocol


def test_static_members_are_shown_by_their_names(server: Server) -> None:
    with member(server, "named", group_instance_id="first"):
        (heading, row) = cells(run("groups", "describe", "named", "--members")[1])
    assert dict(zip(heading, row, strict=True))["GROUP-INSTANCE-ID"] == "first"


def test_a_group_that_is_not_there_does_not_hide_the_others(client: Client) -> None:
    commit_offsets(client, "there", {("orders", 0): 1})
    status, out, err = run("groups", "describe", "there", "missing", "--state")
    assert (status, len(out.splitlines())) == (1, 2)
    assert err.startswith("tidelog: GROUP_ID_NOT_FOUND: there is no group missing\n")
    everything = run("groups", "describe", "--state", "--format", "table")
    assert everything[0] == 0
    assert "there" in [line[0] for line in cells(everything[1])]


TARGETS = [
    (("--to-earliest",), [0, 0]),
    (("--to-latest",), [20, 10]),
    (("--to-current",), [15, 8]),
    (("--to-offset", "7"), [7, 7]),
    (("--shift-by", "-8"), [7, 0]),
    (("--to-datetime", f"{START_MS + 4_500}ms"), [5, 5]),
    (("--by-duration", "PT100H"), [0, 0]),
]


@pytest.mark.parametrize(("target", "expected"), TARGETS)
def test_offsets_are_reset_when_told_to_and_not_before(
    client: Client, target: tuple[str, ...], expected: list[int]
) -> None:
    """A5: to each of Kafka's targets."""
    start = {"orders-0": 15, "orders-1": 8}
    commit_offsets(client, "reset", {("orders", 0): 15, ("orders", 1): 8})
    status, out, _ = run("groups", "reset", "reset", "--topic", "orders", *target)
    assert status == 0
    rows = [["reset", "orders", str(one), str(to)] for one, to in enumerate(expected)]
    assert cells(out) == [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *rows]
    assert offsets_of(client, "reset") == start
    flags = ("--reset-offsets", "--group", "reset", "--all-topics", *target, "--execute")
    assert run("groups", *flags)[:2] == (0, out)
    assert offsets_of(client, "reset") == {f"orders-{at}": to for at, to in enumerate(expected)}


def test_a_reset_stays_within_what_is_there_and_says_so(client: Client) -> None:
    commit_offsets(client, "bounded", {("orders", 0): 5})
    reset = ("groups", "reset", "bounded", "--topic", "orders:0")
    status, out, err = run(*reset, "--to-offset", "100")
    assert (status, err) == (0, "tidelog: orders-0 ends at 20: 100 becomes 20\n")
    assert cells(out)[1] == ["bounded", "orders", "0", "20"]
    _, out, err = run(*reset, "--shift-by", "-6")
    assert err == "tidelog: orders-0 begins at 0: -1 becomes 0\n"
    _, out, err = run(*reset, "--by-duration", "PT1S")
    assert err == "tidelog: orders-0 has no record since then: it is set to the end, 20\n"
    assert offsets_of(client, "bounded") == {"orders-0": 5}


def test_current_is_the_end_where_nothing_was_committed(client: Client) -> None:
    commit_offsets(client, "half", {("orders", 0): 5})
    _, out, _ = run("groups", "reset", "half", "--topic", "orders", "--to-current", "--json")
    assert [row["new_offset"] for row in json.loads(out)] == [5, 10]


def test_what_was_exported_can_be_set_again(client: Client, tmp_path: Path) -> None:
    """For one group without its name, for several with it, as Kafka's tool has it."""
    for group in ("first", "second"):
        commit_offsets(client, group, {("orders", 0): 5, ("orders", 1): 6})
    file = tmp_path / "offsets.csv"
    _, out, _ = run("groups", "reset", "first", "--all-topics", "--shift-by", "1", "--export")
    assert out == "orders,0,6\norders,1,7\n"
    file.write_text(out)
    assert run("groups", "reset", "first", "--from-file", str(file), "--execute")[0] == 0
    assert offsets_of(client, "first") == {"orders-0": 6, "orders-1": 7}
    both = ("groups", "reset", "first", "second")
    _, out, _ = run(*both, "--all-topics", "--to-current", "--export")
    assert out == "first,orders,0,6\nfirst,orders,1,7\nsecond,orders,0,5\nsecond,orders,1,6\n"
    file.write_text(out.replace("6", "9"))
    assert run(*both, "--from-file", str(file), "--execute")[0] == 0
    assert offsets_of(client, "first") == {"orders-0": 9, "orders-1": 7}
    assert offsets_of(client, "second") == {"orders-0": 5, "orders-1": 9}


def test_members_keep_their_offsets_and_their_group(server: Server, client: Client) -> None:
    """A5: whoever reads would not look at what was set, and commit over it."""
    commit_offsets(client, "busy", {("orders", 0): 5})
    with member(server, "busy"):
        reset = run("groups", "reset", "busy", "--all-topics", "--to-latest", "--execute")
        assert reset == (
            1,
            "",
            "tidelog: NON_EMPTY_GROUP: group busy has members (1, and is in state Stable): its "
            "offsets can be reset when all have left\n",
        )
        assert run("groups", "delete", "busy") == (
            1,
            "",
            "tidelog: NON_EMPTY_GROUP: group busy has members: they must leave first\n",
        )
        status, out, _ = run("groups", "delete-offsets", "busy", "--topic", "orders:0")
        assert status == 1
        assert "Error: GROUP_SUBSCRIBED_TO_TOPIC: members of group busy" in out
    assert offsets_of(client, "busy") == {"orders-0": 5}


def test_groups_and_offsets_are_deleted(client: Client) -> None:
    commit_offsets(client, "gone", {("orders", 0): 5, ("users", 0): 0})
    status, out, err = run("groups", "--delete-offsets", "--group", "gone", "--topic", "users")
    assert (status, err) == (0, "")
    assert cells(out) == [["TOPIC", "PARTITION", "STATUS"], ["users", "0", "Successful"]]
    assert offsets_of(client, "gone") == {"orders-0": 5}
    assert run("groups", "delete", "gone") == (0, "Deleted group gone.\n", "")
    assert run("groups", "--delete", "--group", "gone") == (
        1,
        "",
        "tidelog: GROUP_ID_NOT_FOUND: there is no group gone\n",
    )


def test_a_deleted_topic_has_no_lag_and_is_not_reset(client: Client) -> None:
    """Its offsets may outlive it for a while: neither is waited for."""
    assert run("topics", "create", "passing")[0] == 0
    commit_offsets(client, "widowed", {("orders", 0): 5, ("passing", 0): 0})
    assert run("topics", "delete", "passing")[0] == 0
    started = monotonic()
    status, out, _ = run("groups", "reset", "widowed", "--all-topics", "--to-latest")
    assert (status, cells(out)[1:]) == (0, [["widowed", "orders", "0", "20"]])
    assert run("groups", "describe", "widowed")[0] == 0
    assert monotonic() - started < 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("groups list --state Bogus", "--state Bogus: must be one of Stable, Empty, Dead"),
        ("groups list --type share", "--type share: must be one of Classic, Consumer"),
        ("groups describe --members --state", "--members and --state: give one of them"),
        ("groups describe g --all-groups", "g and --all-groups: give one of them"),
        ("groups delete", "name a group, or several, or --all-groups"),
        ("groups delete-offsets a b --topic orders", "name a group"),
        ("groups delete-offsets a", "say of which topic: --topic TOPIC, or TOPIC:0,1"),
        ("groups reset g --topic orders", "say where to: one of --to-earliest, --to-latest"),
        ("groups reset g --to-latest --to-earliest", "--to-earliest and --to-latest: give one"),
        ("groups reset g --to-latest", "say of which partitions: --topic TOPIC, TOPIC:0,1"),
        ("groups reset --topic orders --to-latest", "name a group, or several, or --all-groups"),
        ("groups reset g --topic o --all-topics --to-latest", "--topic and --all-topics: give"),
        ("groups reset g --topic nowhere --to-latest", "UNKNOWN_TOPIC_OR_PARTITION: there is no"),
        ("groups reset g --topic orders:9 --to-latest", "UNKNOWN_TOPIC_OR_PARTITION: there is no"),
        ("groups reset g --topic orders:x --to-latest", "orders:x: must be TOPIC, TOPIC:PARTITI"),
        ("groups reset g --topic orders --to-datetime noon", "--to-datetime noon: must be "),
        ("groups reset g --topic orders --to-datetime 12", "--to-datetime 12: must be a time"),
        ("groups reset g --topic orders --by-duration 1h", "--by-duration 1h: must be a durat"),
        ("groups reset g --from-file f --topic orders", "--from-file says which partitions"),
        ("groups reset g --from-file /nowhere.csv", "/nowhere.csv: No such file or directory"),
        ("groups reset g --all-topics --to-latest --execute --dry-run", "--execute and --dry-ru"),
        ("groups --zookeeper a:1 --list", "--zookeeper: commands talk to brokers"),
        ("consume orders --group g --offset 1", "--offset and --group g: a group says itself wha"),
        ("consume orders --group g --partition 0", "--partition and --group g: a group says its"),
    ],
)
def test_a_mistake_with_groups_is_one_line(arguments: str, message: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith(f"tidelog: {message}")
    assert len(err.splitlines()) <= 2


def test_shifting_needs_something_to_shift_from(client: Client) -> None:
    commit_offsets(client, "partial", {("orders", 0): 5})
    status, _, err = run("groups", "reset", "partial", "--topic", "orders", "--shift-by", "1")
    assert status == 1
    assert err.startswith(
        "tidelog: --shift-by 1: the group has committed no offset of orders-1: name partitions"
    )


def test_a_group_goes_on_behind_what_was_printed(client: Client) -> None:
    """A5: what was not printed is not committed, though librdkafka has fetched it."""
    assert run("topics", "create", "shared-out", "-p", "2")[0] == 0
    assert run("produce", "shared-out", "--partition", "0", "a", "b", "c")[0] == 0
    assert run("produce", "shared-out", "--partition", "1", "x")[0] == 0
    as_group = ("consume", "shared-out", "--group", "printing", "--from-beginning", "--exit")
    status, first, err = run(*as_group, "--max-messages", "2")
    assert (status, err, len(first.split())) == (0, "", 2)
    assert sum(offsets_of(client, "printing").values()) == 2
    assert run("produce", "shared-out", "--partition", "0", "d")[0] == 0
    status, second, err = run(*as_group)
    assert (status, err) == (0, "")
    assert sorted((first + second).split()) == ["a", "b", "c", "d", "x"]
    assert run(*as_group) == (0, "", "")


def test_what_was_reset_is_shown_though_another_group_cannot_be(client: Client) -> None:
    """The first one's offsets are changed by then, and nobody would know."""
    commit_offsets(client, "shift-a", {("orders", 0): 5})
    commit_offsets(client, "shift-b", {("orders", 1): 5})
    wanted = ("--topic", "orders:0", "--shift-by", "-2", "--execute")
    status, output, errors = run("groups", "reset", "shift-a", "shift-b", *wanted)
    assert offsets_of(client, "shift-a") == {"orders-0": 3}
    assert status == 1
    assert cells(output)[1:] == [["shift-a", "orders", "0", "3"]]
    assert "has committed no offset of orders-0" in errors


def test_a_record_that_comes_while_a_time_is_looked_for_is_not_passed_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is younger than that time, so the group has to read it."""
    assert run("topics", "create", "quiet")[0] == 0

    def asking(*arguments: Any) -> Any:
        found = list_many_offsets(*arguments)
        assert run("produce", "quiet", "x")[0] == 0
        return found

    monkeypatch.setattr(reset_target, "list_many_offsets", asking)
    target = Target(option="--to-datetime", time_ms=START_MS)
    place = TopicPartition("quiet", 0)
    assert resolve(client, target, [place], {}) == {place: 0}
