"""`tidelog dlq` against a server: dead letters are counted, shown and written back (A6, P6)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from clients.confluent import consumer, read
from support.command_line import run
from support.servers import Server
from tidelog.records.murmur2 import partition_for
from tidelog.spark import dead_letter_format as names

TIME_MS = 1_700_000_000_123
DIED_MS = 1_750_000_000_000
Header = tuple[str, bytes | None]


@pytest.fixture(autouse=True)
def bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)
    return shared_server.address


def done(*arguments: str) -> str:
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    return out


def made(name: str, partitions: int = 1, *settings: str) -> str:
    options = [part for setting in settings for part in ("--config", setting)]
    done("topics", "create", name, "-p", str(partitions), *options)
    return name


def letter_headers(origin: str, offset: int, **changed: str) -> list[Header]:
    told = {
        names.TOPIC: origin,
        names.PARTITION: "0",
        names.OFFSET: str(offset),
        names.TIMESTAMP: str(TIME_MS + offset),
        names.REASON: "value is not JSON",
        names.STAGE: "silver",
        names.ATTEMPT: "1",
        **{names.HEADER_PREFIX + name: text for name, text in changed.items()},
    }
    return [(name, text.encode()) for name, text in told.items()]


def bury(bootstrap: str, topic: str, letters: Sequence[Mapping[str, Any]], **settings: Any) -> None:
    """Each with `headers`, and what else `produce` takes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **settings})
    for letter in letters:
        producer.produce(topic, **{"value": b"poison", "timestamp": DIED_MS, **letter})
    assert producer.flush(60) == 0


def buried(bootstrap: str, origin: str) -> str:
    """Five dead letters: three of one reason, and two stages, and one that is a stranger's."""
    topic = made(f"{origin}.dlq")
    bury(
        bootstrap,
        topic,
        [
            {"key": b"a", "headers": [("trace", b"\xff\x00"), *letter_headers(origin, 10)]},
            {"key": None, "headers": letter_headers(origin, 11, attempt="3")},
            {"headers": letter_headers(origin, 12, stage="gold"), "timestamp": DIED_MS + 5000},
            {"headers": letter_headers(origin, 13, reason="value is null"), "value": None},
            {"value": b"a stranger's", "headers": None},
        ],
    )
    return topic


def test_dead_letters_are_counted_by_origin_stage_and_reason(bootstrap: str) -> None:
    buried(bootstrap, "counted")
    lines = done("dlq", "list", "counted").splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["FROM", *["counted"] * 3, "-"]
    assert lines[0].split() == ["FROM", "STAGE", "REASON", "RECORDS", "ATTEMPT", "FIRST", "LAST"]
    found = json.loads(done("dlq", "list", "counted.dlq", "--json"))
    rows = {(row["topic"], row["stage"], row["reason"]): row for row in found}
    assert {group: (row["records"], row["attempt_max"]) for group, row in rows.items()} == {
        ("counted", "silver", "value is not JSON"): (2, 3),
        ("counted", "gold", "value is not JSON"): (1, 1),
        ("counted", "silver", "value is null"): (1, 1),
        (None, None, None): (1, None),
    }
    assert found[0]["records"] == 2, "the most frequent come first"
    gold = rows["counted", "gold", "value is not JSON"]
    assert (gold["first_timestamp"], gold["last_timestamp"]) == (DIED_MS + 5000,) * 2


def test_a_part_can_be_counted_by_offset_and_by_time(bootstrap: str) -> None:
    buried(bootstrap, "parted")

    def count(*options: str) -> int:
        found = json.loads(done("dlq", "list", "parted", "--json", *options))
        return sum(row["records"] for row in found)

    assert count() == 5
    assert count("--from", "1", "--to", "3") == 2
    assert count("--from", "0:4") == 1
    assert count("--from", f"{DIED_MS + 1}ms") == 3, "from the first that is not older"
    assert count("--to", "2025-06-15T15:06:40.001Z") == 2
    assert count("--partition", "0", "--from", "latest") == 0
    assert done("dlq", "list", "parted", "--from", "latest") == "parted.dlq: no dead letters\n"


def test_dead_letters_are_shown_with_origin_and_reason(bootstrap: str) -> None:
    buried(bootstrap, "shown")
    out = done("dlq", "show", "shown", "--limit", "1")
    assert out.splitlines() == [
        "shown.dlq-0 offset 0, 2025-06-15T15:06:40.000Z",
        "  from     shown-0 offset 10, 2023-11-14T22:13:20.133Z",
        "  reason   value is not JSON",
        "  stage    silver",
        "  attempt  1",
        "  header   trace: \N{REPLACEMENT CHARACTER}\\x00",
        "  key      a",
        "  value    poison",
    ]
    assert done("dlq", "show", "shown", "-p", "0", "-o", "4").splitlines()[1:] == [
        "  from     it does not say where",
        "  key      null",
        "  value    a stranger's",
    ]
    assert done("dlq", "show", "shown").count("offset 1") == 5, "10 to 13, and the offset 1"
    nulls = done("dlq", "show", "shown", "--reason", "is null").splitlines()
    assert nulls[-1] == "  value    null"
    assert len(nulls) == 7
    assert done("dlq", "show", "shown", "--reason", "no such") == (
        "shown.dlq: no such dead letters\n"
    )


def test_dead_letters_are_shown_as_json_with_all_their_bytes(bootstrap: str) -> None:
    buried(bootstrap, "bytes")
    rows = [json.loads(line) for line in done("dlq", "show", "bytes", "--json").splitlines()]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
    origin = {"topic": "bytes", "partition": 0, "offset": 10, "timestamp": TIME_MS + 10}
    assert rows[0]["origin"] == origin
    assert (rows[0]["reason"], rows[0]["attempt"]) == ("value is not JSON", 1)
    assert rows[0]["headers"][0] == {"key": "trace", "value_base64": "/wA="}
    assert rows[4]["origin"]["topic"] is None
    ranged = done("dlq", "show", "bytes", "-j", "-p", "0", "-o", "1-3", "--stage", "gold")
    assert json.loads(ranged)["offset"] == 2


def test_what_a_dead_letter_says_cannot_act_on_the_terminal(bootstrap: str) -> None:
    topic = made("hostile.dlq")
    headers = letter_headers(
        "\x1b[2Jx", 1, reason="\x1b[31mred\nnext", partition="1;", attempt="-4"
    )
    bury(bootstrap, topic, [{"value": b"\x1b]0;t\x07", "key": b"x" * 5000, "headers": headers}])
    for arguments in (("show", topic), ("list", topic), ("show", topic, "-j"), ("redrive", topic)):
        out = done("dlq", *arguments)
        assert not any(ord(letter) < 32 for letter in out.replace("\n", ""))
        assert "\nnext" not in out
    shown = done("dlq", "show", topic)
    assert "reason   \\x1b[31mred\\nnext" in shown
    assert "from     it does not say where" in shown, "no topic can have such a name"
    assert "... (5000 bytes, all of them with --json)" in shown


def stored(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    found = read(bootstrap, topic, count, partitions=partitions)
    assert len(found) == count
    return list(found)


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    with consumer(bootstrap) as reader:
        place = TopicPartition(topic, partition)
        return int(reader.get_watermark_offsets(place, timeout=60)[1])


def test_redriving_is_tried_without_writing_anything(bootstrap: str) -> None:
    made("dry", 2)
    buried(bootstrap, "dry")
    out = done("dlq", "redrive", "dry", "--reason", "JSON").splitlines()
    assert out[0].split() == ["TO", "STAGE", "REASON", "RECORDS", "ATTEMPT", "FIRST", "LAST"]
    assert [line.split()[0] for line in out[1:3]] == ["dry", "dry"]
    assert out[3:] == [
        "2 records of dry.dlq left out: not what was asked for",
        "3 records would be written; nothing was: add --execute to write them",
    ]
    assert end_of(bootstrap, "dry") == 0
    told = json.loads(done("dlq", "redrive", "dry", "--json"))
    counts = (told["read"], told["matching"], told["without_origin"], told["written"])
    assert counts == (5, 5, 1, 0)


def test_redriven_records_are_as_they_were(bootstrap: str) -> None:
    """P6: back in the partition they were read from, with all they had, and the attempt kept so
    that the next failure counts on."""
    made("back", 3)
    topic = made("back.dlq", 2)
    headers = [("trace", b"\xff"), ("none", None), *letter_headers("back", 7, partition="2")]
    old = letter_headers("back", 8, partition="9", timestamp="unknown", attempt="4")
    bury(
        bootstrap,
        topic,
        [
            {"key": b"k", "headers": headers, "partition": 1},
            {"key": b"other", "value": None, "headers": old, "partition": 0},
        ],
    )
    out = done("dlq", "redrive", "back", "--execute")
    assert out.splitlines()[-1] == (
        "2 records written; they stay in back.dlq, what follows them: --from 0:1,1:1"
    )
    found = {one.key(): one for one in stored(bootstrap, "back", 2, partitions=3)}
    first, second = found[b"k"], found[b"other"]
    assert (first.partition(), first.value(), first.headers()) == (2, b"poison", headers)
    assert first.timestamp() == (1, TIME_MS + 7)
    assert second.partition() == partition_for(b"other", 3), "there is no partition 9"
    assert (second.value(), dict(second.headers())[names.ATTEMPT]) == (None, b"4")
    assert second.timestamp() == (1, DIED_MS), "its own is not known"
    assert done("dlq", "redrive", "back", "--from", "0:1,1:1") == "back.dlq: nothing to write\n"


def test_redriving_takes_what_was_asked_for_and_no_more(bootstrap: str) -> None:
    made("some")
    buried(bootstrap, "some")
    chosen = {
        ("--stage", "gold"): {12},
        ("--max-attempts", "2"): {10, 12, 13},
        ("--reason", "is null"): {13},
        ("--partition", "0", "--offset", "1-2"): {11, 12},
        ("--partition", "0", "--offset", "3"): {13},
        ("--reason", "JSON", "--stage", "silver", "--max-attempts", "1"): {10},
    }
    for options, origins in chosen.items():
        before = end_of(bootstrap, "some")
        done("dlq", "redrive", "some", *options, "--execute")
        found = stored(bootstrap, "some", before + len(origins))[before:]
        assert {int(dict(one.headers())[names.OFFSET]) for one in found} == origins, options


def test_redriving_into_another_topic_takes_strangers_too(bootstrap: str) -> None:
    made("elsewhere", 4)
    buried(bootstrap, "gone")
    told = json.loads(done("dlq", "redrive", "gone", "--into", "elsewhere", "--execute", "--json"))
    assert (told["matching"], told["without_origin"], told["written"]) == (5, 0, 5)
    found = stored(bootstrap, "elsewhere", 5, partitions=4)
    keyed = next(one for one in found if one.key() == b"a")
    assert keyed.partition() == partition_for(b"a", 4)
    assert {one.value() for one in found} == {b"poison", b"a stranger's", None}


def test_only_what_was_committed_is_a_dead_letter(bootstrap: str) -> None:
    """A6: pipelines bury in transactions, of which one is aborted here and one is still open."""
    made("sure")
    topic = made("sure.dlq")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "sure"})
    producer.init_transactions(30)
    for origin, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"poison", headers=letter_headers("sure", origin))
        assert producer.flush(60) == 0
        end(30)
    producer.begin_transaction()
    producer.produce(topic, b"poison", headers=letter_headers("sure", 3))
    assert producer.flush(60) == 0
    assert [row["records"] for row in json.loads(done("dlq", "list", "sure", "--json"))] == [1]
    assert json.loads(done("dlq", "show", "sure", "--json"))["origin"]["offset"] == 2
    told = json.loads(done("dlq", "redrive", "sure", "--execute", "--json"))
    assert (told["read"], told["written"]) == (1, 1)
    assert end_of(bootstrap, "sure") == 1
    producer.commit_transaction(30)
    assert [row["records"] for row in json.loads(done("dlq", "list", "sure", "--json"))] == [2]


def test_nothing_is_redriven_if_one_origin_is_gone(bootstrap: str) -> None:
    made("one-of-two")
    topic = made("mixed.dlq")
    origins = ("one-of-two", "two-of-two")
    bury(bootstrap, topic, [{"headers": letter_headers(origin, 1)} for origin in origins])
    status, out, err = run("dlq", "redrive", "mixed", "--execute")
    assert (status, len(out.splitlines())) == (1, 3)
    assert err == (
        "tidelog: 1 record came from two-of-two, and there is no such topic: tidelog topics "
        "create two-of-two, or name another one with --into\n"
    )
    assert end_of(bootstrap, "one-of-two") == 0


def test_many_dead_letters_of_all_codecs_and_sizes_are_redriven(bootstrap: str) -> None:
    """In the order in which they died, to a topic that takes small batches only."""
    made("plenty", 1, "max.message.bytes=20000")
    topic = made("plenty.dlq", 1, "max.message.bytes=2000000")
    letters = [
        {"key": b"%d" % n, "value": b"v" * (n % 97), "headers": letter_headers("plenty", n)}
        for n in range(5000)
    ]
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        part = letters[number * 1000 : (number + 1) * 1000]
        bury(bootstrap, topic, part, **{"compression.type": codec})
    out = done("dlq", "redrive", "plenty", "--execute")
    assert "5000 records written" in out
    found = stored(bootstrap, "plenty", 5000)
    assert [int(one.key()) for one in found] == list(range(5000))
    assert [len(one.value()) for one in found] == [n % 97 for n in range(5000)]
    assert [one.timestamp()[1] - TIME_MS for one in found] == list(range(5000))


def test_a_record_that_is_too_large_is_told_with_what_was_written(bootstrap: str) -> None:
    made("narrow-again", 1, "max.message.bytes=2000")
    topic = made("narrow-again.dlq")
    bury(bootstrap, topic, [{"value": b"x" * 5000, "headers": letter_headers("narrow-again", 1)}])
    status, _, err = run("dlq", "redrive", "narrow-again", "--execute")
    assert status == 1
    first, second = err.splitlines()
    assert first == "tidelog: at least 0 records of 1 were written"
    assert second.startswith("tidelog: MESSAGE_TOO_LARGE: narrow-again-0: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("list nobody", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic nobody.dlq, so no dead"),
        ("list m -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused"),
        ("list m --from soon", "--from soon: must be earliest, latest, an offset such as 1200"),
        ("list m --from 1750000000000", "--from 1750000000000: m.dlq ends at offset 1; a time in"),
        ("list m --from 0:7", "--from 0:7: m.dlq-0 has no offset 7, it begins at 0 and ends at 1"),
        ("list m --from 1 --to 0", "--to 0: lies before --from 1"),
        ("list m --partition 3", "--partition: m.dlq has no partition 3, only 0 to 0"),
        ("show m --offset 1", "--offset 1: say of which --partition"),
        ("show m -p 0 -o 9-2", "--offset 9-2: must be an offset such as 12, or a range such as"),
        ("show m -p 0 -o 8", "--offset 8: m.dlq-0 has no offset 8, it begins at 0"),
        ("show m -p 0 -o 0 --from 0", "--offset 0: leave out --from and --to, or use these"),
        ("redrive m --into m.dlq", "--into m.dlq: that is where the dead letters are"),
        ("redrive m --into absent", "there is no topic absent to write to: tidelog topics create"),
    ],
)
def test_a_mistake_with_dead_letters_is_one_line(
    bootstrap: str, arguments: str, message: str
) -> None:
    done("topics", "create", "m.dlq", "-p", "1", "--if-not-exists")
    if end_of(bootstrap, "m.dlq") == 0:
        bury(bootstrap, "m.dlq", [{"headers": letter_headers("m", 1)}])
    status, out, err = run("dlq", *arguments.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1
