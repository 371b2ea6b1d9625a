"""`tidelog replay` before its job starts: what it would copy, and what it refuses (P6)."""

import json

import pytest
from confluent_kafka import Producer

from support.command_line import run
from support.servers import Server

START_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)
    return shared_server.address


def filled(bootstrap: str, topic: str) -> str:
    """Ten records in partition 0, four in partition 1, none in 2; a second apart."""
    if run("topics", "create", topic, "-p", "3")[0] == 0:
        producer = Producer({"bootstrap.servers": bootstrap})
        for partition, count in ((0, 10), (1, 4)):
            for number in range(count):
                when = START_MS + 1000 * number
                producer.produce(topic, b"%d" % number, partition=partition, timestamp=when)
        assert producer.flush(60) == 0
        assert run("topics", "create", f"{topic}-copy", "-p", "3")[0] == 0
    return topic


@pytest.mark.parametrize(
    ("start", "end", "ranges"),
    [
        ("earliest", "latest", [(0, 0, 10), (1, 0, 4)]),
        ("2", "6", [(0, 2, 6), (1, 2, 4)]),
        ("5", "latest", [(0, 5, 10)]),
        ("0:3", "latest", [(0, 3, 10)]),
        ("0:3,1:1", "0:5,1:4", [(0, 3, 5), (1, 1, 4)]),
        ("earliest", "1:2", [(1, 0, 2)]),
        (f"{START_MS + 3000}ms", "latest", [(0, 3, 10), (1, 3, 4)]),
        ("2023-11-14T22:13:22Z", "2023-11-14T23:13:24.500+01:00", [(0, 2, 5), (1, 2, 4)]),
        ("2023-11-14 22:13:28", "latest", [(0, 8, 10)]),
        ("2023-11-15", "latest", []),
        ("latest", "latest", []),
    ],
)
def test_ranges_are_found_by_offset_and_by_time(
    bootstrap: str, start: str, end: str, ranges: list[tuple[int, int, int]]
) -> None:
    topic = filled(bootstrap, "ranged")
    arguments = ("--from", start, "--to", end, "--into", "ranged-copy", "--json")
    status, out, err = run("replay", topic, *arguments)
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert [(one["partition"], one["from"], one["to"]) for one in told["ranges"]] == ranges
    assert (told["records_max"], told["copied"]) == (sum(to - at for _, at, to in ranges), 0)


def test_without_execute_it_says_what_it_would_copy(bootstrap: str) -> None:
    topic = filled(bootstrap, "planned")
    out = run("replay", topic, "--from", "2", "--into", "planned-copy")[1].splitlines()
    assert [line.split() for line in out[:-1]] == [
        ["from", "planned", "to", "planned-copy"],
        ["PARTITION", "FROM", "TO", "RECORDS"],
        ["0", "2", "10", "8"],
        ["1", "2", "4", "2"],
    ]
    assert out[-1] == (
        "at most 10 records would be copied; nothing was: add --execute to copy them"
    )
    same = ("--into", topic, "--allow-same-topic")
    assert run("replay", topic, "--from", "earliest", *same)[0] == 0
    none = run("replay", topic, "--from", "latest", "--into", "planned-copy", "--execute")
    assert none == (0, "nothing to copy: no records are there\n", "")


def test_what_is_not_committed_is_not_copied(bootstrap: str) -> None:
    for topic in ("unsure", "unsure-copy"):
        assert run("topics", "create", topic, "-p", "1")[0] == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "unsure"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("unsure", b"good", timestamp=START_MS)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("unsure", b"open", timestamp=START_MS + 1000)
    assert producer.flush(60) == 0
    # At 1 is the marker of the commit.
    for start, ranges in (("earliest", [(0, 2)]), (f"{START_MS + 500}ms", [(1, 2)])):
        out = run("replay", "unsure", "--from", start, "--into", "unsure-copy", "--json")[1]
        assert [(one["from"], one["to"]) for one in json.loads(out)["ranges"]] == ranges
    producer.abort_transaction(30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("absent --from 0 --into r-copy", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic absent"),
        ("r --from 0 --into r", "--into r: is the topic itself; --allow-same-topic to add to it"),
        (
            "r --from 0 --into nowhere",
            "there is no topic nowhere to write to: tidelog topics create nowhere --partitions 3",
        ),
        ("r --from x --into r-copy", "--from x: must be earliest, latest, an offset such as"),
        ("r --from -1 --into r-copy", "--from -1: must be earliest, latest, an offset such as"),
        ("r --from 1969-12-31 --into r-copy", "--from 1969-12-31: lies before 1970"),
        ("r --from 99999999999999999999 --into r-copy", "--from 99999999999999999999: 999999999"),
        ("r --from 1700000000000 --into r-copy", "--from 1700000000000: r ends at offset 10; a ti"),
        ("r --from 0:1,0:2 --into r-copy", "--from 0:1,0:2: names a partition twice"),
        ("r --from 0:1 --to 1:2 --into r-copy", "--from 0:1 and --to 1:2: must name the same"),
        ("r --from 7:1 --into r-copy", "--from 7:1: r has no partition 7, only 0 to 2"),
        ("r --from 0:11 --into r-copy", "--from 0:11: r-0 has no offset 11, it begins at 0 and"),
        ("r --from 5 --to 4 --into r-copy", "--to 4: lies before --from 5"),
        ("r --from 0:5 --to 0:4 --into r-copy", "--to 0:4: lies before --from 0:5"),
        ("r --from 5ms --to 4ms --into r-copy", "--to 4ms: lies before --from 5ms"),
        (
            "r --from 0 --into small --keep-partitions",
            "--keep-partitions: small has partitions 0 to 0, and none for r-1: tidelog topics",
        ),
        (
            "r --from 0 --into r-copy --execute --master local --remote sc://x",
            "--master and --remote: one of them",
        ),
        ("r --from 0 --into r-copy -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused"),
    ],
)
def test_a_mistake_with_a_replay_is_one_line(bootstrap: str, arguments: str, message: str) -> None:
    filled(bootstrap, "r")
    run("topics", "create", "small", "-p", "1", "--if-not-exists")
    status, _, err = run("replay", *arguments.split())
    assert status == 1
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1
