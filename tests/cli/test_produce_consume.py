"""`tidelog produce` and `tidelog consume` against a server: what goes in comes out (A1, R1)."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from support.servers import Server
from tidelog.cli.main import app
from tidelog.log.dump import DumpOptions, dump
from tidelog.records.murmur2 import partition_for
from tidelog.world.real.disk import RealDisk


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


def run(*arguments: str, lines: bytes = b"") -> tuple[int, bytes, str]:
    result = CliRunner().invoke(app, list(arguments), prog_name="tidelog", input=lines)
    return result.exit_code, result.stdout_bytes, result.stderr


def made(name: str, partitions: int = 1) -> str:
    assert run("topics", "create", name, "-p", str(partitions))[0] == 0
    return name


def written(*arguments: str, lines: bytes = b"") -> None:
    assert run("produce", *arguments, lines=lines) == (0, b"", "")


def read(topic: str, *options: str) -> bytes:
    status, out, err = run("consume", topic, "--from-beginning", "--exit", *options)
    assert (status, err) == (0, "")
    return out


def test_lines_come_out_as_they_went_in() -> None:
    topic = made("lines")
    lines = "one\n\n  two \nthrée\r\n".encode() + b"\xff\xfe raw\nlast without an end"
    written(topic, lines=lines)
    assert read(topic) == "one\n\n  two \nthrée\n".encode() + b"\xff\xfe raw\nlast without an end\n"


def test_arguments_are_records_too() -> None:
    topic = made("arguments")
    written(topic, "first", "second one")
    written("--topic", topic, "third")
    assert read(topic) == b"first\nsecond one\nthird\n"


def test_arguments_are_records_as_they_are() -> None:
    """Only a line has an end that is not part of it."""
    topic = made("ends-of-arguments")
    written(topic, "a\n", "b\r", "c\r\n")
    values = [json.loads(line)["value"] for line in read(topic, "--json").splitlines()]
    assert values == ["a\n", "b\r", "c\r\n"]


def test_no_lines_are_no_records() -> None:
    topic = made("nothing")
    written(topic)
    assert read(topic) == b""


def test_keys_headers_and_nulls_survive() -> None:
    topic = made("parts")
    written(topic, "-K", ":", "--headers", "--null-marker", "NULL", lines=b"h:1,i:NULL\tk:v\n")
    written(topic, "-K", ":", "--null-marker", "NULL", lines=b"gone:NULL\nNULL:no key\n")
    written(topic, "plain", "--key", "same", "-H", "from=me")
    assert read(topic, "--key", "--headers", "--place") == (
        b"Partition:0\tOffset:0\th:1,i:null\tk\tv\n"
        b"Partition:0\tOffset:1\tNO_HEADERS\tgone\tnull\n"
        b"Partition:0\tOffset:2\tNO_HEADERS\tnull\tno key\n"
        b"Partition:0\tOffset:3\tfrom:me\tsame\tplain\n"
    )


def test_properties_of_the_console_tools_do_the_same(shared_server: Server) -> None:
    topic = made("console")
    where = ("--bootstrap-server", shared_server.address, "--topic", topic)
    parse = ("--property", "parse.key=true", "--property", "key.separator=:")
    assert run("produce", *where, *parse, lines=b"a:1\nb:2\n") == (0, b"", "")
    shown = ("--property", "print.key=true", "--property", "key.separator=-")
    command = ("consume", *where, "--from-beginning", *shown, "--max-messages", "2")
    assert run(*command) == (0, b"a-1\nb-2\n", "")


def test_settings_of_a_client_come_from_a_file_too(shared_server: Server, tmp_path: Path) -> None:
    """As the newer and as the older console tools name it; what is given by hand goes before."""
    topic = made("from-a-file")
    ones, twos, threes = (digit * 200 + b"\n" for digit in (b"1", b"2", b"3"))
    file = tmp_path / "client.properties"
    file.write_text("# of ours\ncompression.type=zstd\nlinger.ms=1\n")
    old = ("--broker-list", shared_server.address, "--topic", topic)
    written(*old, "--producer.config", str(file), "--sync", lines=ones + twos)
    property_ = ("--command-property", "compression.type=gzip")
    written(*old, "--command-config", str(file), *property_, lines=threes)
    (segment,) = (shared_server.log_dir / f"{topic}-0").glob("*.log")
    batches = list(dump(RealDisk(), str(segment), DumpOptions()))
    codecs = [line.split("compresscodec: ")[1].split()[0] for line in batches if "compress" in line]
    assert codecs == ["zstd", "zstd", "gzip"], "two batches: each was waited for"
    file.write_text("isolation.level=read_committed\n")
    assert read(topic, "--consumer.config", str(file)) == ones + twos + threes
    file.write_text("no.such.setting=1\n")
    status, _, err = run("consume", topic, "--command-config", str(file))
    assert status == 1
    assert "no.such.setting" in err
    status, _, err = run("produce", topic, "--command-config", str(tmp_path / "missing"))
    assert status == 1
    assert "missing: cannot be read" in err


def test_json_has_an_object_for_each_record() -> None:
    topic = made("objects")
    written(topic, "-K", ":", "-H", "a=b", lines=b"k:\xff\n")
    (record,) = map(json.loads, read(topic, "--json").splitlines())
    assert record.pop("timestamp") > 1_600_000_000_000
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"key": "a", "value": "b"}],
    }


def test_keys_go_where_java_clients_send_them() -> None:
    topic = made("spread", partitions=5)
    keys = [f"key-{number}" for number in range(40)]
    written(topic, "-K", ":", lines="".join(f"{key}:x\n" for key in keys).encode())
    records = [json.loads(line) for line in read(topic, "--json").splitlines()]
    assert {record["key"]: record["partition"] for record in records} == {
        key: partition_for(key.encode(), 5) for key in keys
    }


def test_a_partition_can_be_chosen_for_writing_and_reading() -> None:
    topic = made("chosen", partitions=3)
    for partition in (0, 2):
        written(topic, f"to {partition}", "--partition", str(partition))
    assert read(topic, "--partition", "2") == b"to 2\n"
    assert read(topic, "--partition", "1") == b""
    assert sorted(read(topic).splitlines()) == [b"to 0", b"to 2"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_stored_with_the_codec_asked_for(codec: str, shared_server: Server) -> None:
    topic = made(f"codec-{codec}")
    written(topic, "--compression-codec", codec, lines=b"same again\n" * 100)
    assert read(topic) == b"same again\n" * 100
    segment = shared_server.log_dir / f"{topic}-0" / "00000000000000000000.log"
    lines = list(dump(RealDisk(), str(segment), DumpOptions()))
    batches = [line for line in lines if line.startswith("baseOffset")]
    assert batches
    assert all(f"compresscodec: {codec} " in line for line in batches)


@pytest.mark.parametrize("acks", ["all", "-1", "1", "0"])
def test_every_kind_of_acknowledgement_works(acks: str) -> None:
    """A1: with 0 the answer is not waited for, so what was sent is looked for for a while."""
    topic = made(f"acks{acks}")
    written(topic, "x", "--acks", acks)
    command = ("consume", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    assert run(*command) == (0, b"x\n", "")


def test_reading_begins_where_one_wants() -> None:
    topic = made("places")
    written(topic, *(f"r{number}" for number in range(6)))
    base = ("consume", topic, "--exit")
    assert run(*base)[1] == b""
    assert run(*base, "--offset", "latest")[1] == b""
    assert run(*base, "--offset", "earliest")[1].count(b"\n") == 6
    assert run(*base, "--offset", "4")[1] == b"r4\nr5\n"
    assert run(*base, "--partition", "0", "--offset", "6")[1] == b""
    assert run(*base, "-f", "-n", "2")[1] == b"r0\nr1\n"
    assert run("consume", topic, "-f", "--timeout-ms", "2000")[1].count(b"\n") == 6


def test_deleted_records_are_passed_over(shared_server: Server) -> None:
    topic = made("shortened")
    written(topic, "a", "b", "c")
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": shared_server.address})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    deleted.result(60)
    assert read(topic) == b"c\n"
    assert run("consume", topic, "--offset", "0", "--exit")[1] == b"c\n"


def test_only_committed_records_are_read_if_that_is_wanted() -> None:
    topic = made("committed")
    written(topic, "x")
    assert read(topic, "--isolation-level", "read_committed") == b"x\n"


def test_timestamps_say_whose_they_are(shared_server: Server) -> None:
    assert run("topics", "create", "stamped", "-c", "message.timestamp.type=LogAppendTime")[0] == 0
    written("stamped", "x")
    assert read("stamped", "--timestamp").startswith(b"LogAppendTime:")
    producer = Producer({"bootstrap.servers": shared_server.address, "log_level": 0})
    producer.produce(made("dated"), b"y", timestamp=1234)
    assert producer.flush(60) == 0
    assert read("dated", "-t") == b"CreateTime:1234\ty\n"


def test_a_topic_is_made_by_writing_to_it_and_not_by_reading() -> None:
    """T6: auto-creation, as kafka-console-producer does."""
    assert run("consume", "made-on-the-way", "-e") == (
        1,
        b"",
        "tidelog: UNKNOWN_TOPIC_OR_PARTITION: there is no topic made-on-the-way\n",
    )
    written("made-on-the-way", "x")
    assert read("made-on-the-way") == b"x\n"


def test_lines_before_a_bad_one_are_written() -> None:
    topic = made("half")
    status, _, err = run("produce", topic, "-K", ":", lines=b"a:1\nb:2\nno key\nd:4\n")
    assert (status, err) == (1, "tidelog: line 3 has no key separator ':': 'no key'\n")
    assert read(topic, "-k") == b"a\t1\nb\t2\n"


def test_a_record_that_the_broker_refuses_is_told() -> None:
    assert run("topics", "create", "narrow", "-c", "max.message.bytes=1000")[0] == 0
    status, _, err = run("produce", "narrow", "x" * 5000)
    assert status == 1
    assert err.splitlines() == [
        "tidelog: MSG_SIZE_TOO_LARGE: Broker: Message size too large",
        "tidelog: 1 of 1 records were not written",
    ]


def test_large_records_go_through_if_the_topic_takes_them() -> None:
    assert run("topics", "create", "broad", "-c", "max.message.bytes=4000000")[0] == 0
    written("broad", lines=b"x" * 3_000_000)
    assert read("broad") == b"x" * 3_000_000 + b"\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("produce", "name a topic: tidelog produce TOPIC"),
        ("consume", "name a topic: tidelog consume TOPIC"),
        ("produce t x --acks 2", "--acks 2: must be one of all, -1, 1, 0"),
        ("produce t x -z brotli", "--compression brotli: must be one of none, gzip"),
        ("produce t x --partition 9", "--partition 9: t has partitions 0 to 0"),
        ("produce bad/name x", "INVALID_TOPIC_EXCEPTION: "),
        ("produce t x --property a=b", "--property a: must be one of parse.key"),
        ("produce t x --producer-property a=b", "--producer-property: No such configuration prop"),
        ("produce t x -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused"),
        ("produce t x --zookeeper a:1", "--zookeeper: commands talk to brokers"),
        ("consume t --zookeeper a:1", "--zookeeper: commands talk to brokers"),
        ("consume t -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused"),
        ("consume t --offset x", "--offset x: must be earliest, latest, or a number from 0 on"),
        ("consume t -f --offset 1", "--from-beginning and --offset 1: give one of them"),
        ("consume t --offset 99", "--offset 99: t-0 "),
        ("consume t --partition 1", "--partition 1: t has partitions 0 to 0"),
        ("consume t --topic u", "t and --topic u: one topic can be read at a time"),
        ("consume t --isolation-level x", "--isolation-level x: must be one of read_committed"),
        ("consume wide --offset 0", "--offset 0: say of which --partition; wide has 2"),
        ("consume t --property print.it=true", "--property print.it: must be one of print."),
        ("consume t -e --json --property print.key=true", "--property print.key and --json: JSON"),
        ("audit t --compacted", "--compacted: say which --log-dirs; a cluster knows it by itself"),
        ("consume t --consumer-property a=b", "--consumer-property: No such configuration prop"),
    ],
)
def test_a_mistake_with_records_is_one_line(arguments: str, message: str) -> None:
    run("topics", "create", "t", "-p", "1", "--if-not-exists")
    run("topics", "create", "wide", "-p", "2", "--if-not-exists")
    status, out, err = run(*arguments.split())
    assert (status, out) == (1, b"")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1


def test_other_clients_read_what_was_written(shared_server: Server) -> None:
    topic = made("for-others")
    written(topic, "-K", ":", "-H", "a=b", lines=b"k:v\n")
    settings = {"bootstrap.servers": shared_server.address, "group.id": "others", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        found = (message.key(), message.value(), message.headers())
        assert found == (b"k", b"v", [("a", b"b")])
    finally:
        consumer.close()
