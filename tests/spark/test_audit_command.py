"""`tidelog audit` at a running node: what it is given, what it says, and its status (P8)."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from support import scripted_brokers
from support.new_topics import NewTopicMaker
from support.servers import Server, new_server
from support.stored_replicas import TOPIC, Stored, history, write_replica
from tidelog.base.errors import BadValue, ErrorCode
from tidelog.cli.audit import examine, show
from tidelog.cli.main import app
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.log.files import LOG, file_name
from tidelog.spark.audit_report import Audited, Finding, Ledger, Report
from tidelog.spark.audited_files import Replica, Subject, of_cluster

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
VALUES = (b"a", b"b", None)
HEAD = "topic,partition,offset,checksum"


@pytest.fixture
def topic(log_server: Server, new_topic: NewTopicMaker) -> str:
    name = new_topic(2)
    producer = Producer({"bootstrap.servers": log_server.address})
    for value in VALUES:
        producer.produce(name, value, partition=1)
    assert producer.flush(60) == 0
    return name


def written(folder: Path, lines: Sequence[str]) -> Path:
    path = folder / "ledger.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def noted(topic: str) -> list[str]:
    return [f"{topic},1,{n},{zlib.crc32(value or b'')}" for n, value in enumerate(VALUES)]


def asked(server: Server, topic: str) -> Subject:
    with Client(server.address) as client:
        return of_cluster(client, topic)


def test_a_cluster_says_what_there_is_to_audit(log_server: Server, topic: str) -> None:
    subject = asked(log_server, topic)
    assert subject.high_watermarks == {0: 0, 1: 3}
    assert not subject.is_compacted
    assert [(one.partition, one.log_dir) for one in subject.replicas] == [
        (0, str(log_server.log_dir)),
        (1, str(log_server.log_dir)),
    ]


def test_a_compacted_topic_is_known_as_one(log_server: Server, new_topic: NewTopicMaker) -> None:
    assert asked(log_server, new_topic(1, cleanup_policy="compact,delete")).is_compacted


def test_a_replica_that_falls_out_meanwhile_need_not_have_what_was_committed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: it has what was committed while it was in sync, and no more; when this was asked must
    not depend on how long brokers take to say where their files are."""
    in_sync = [1, 2]
    rows = [{"partition_index": 0, "partition_size": 0, "offset_lag": 0, "is_future_key": False}]

    def answer(number: int, key: int, _body: Any) -> dict[str, Any]:
        if key == apis.LIST_OFFSETS.key:
            row = {"partition_index": 0, "offset": 10 if 2 in in_sync else 20}
            row |= {"error_code": ErrorCode.none, "timestamp": -1, "leader_epoch": 0}
            return {"topics": [{"name": TOPIC, "partitions": [row]}]}
        if key == apis.DESCRIBE_LOG_DIRS.key:
            partition["isr_nodes"] = in_sync[:] = [1]
            result = {"error_code": ErrorCode.none, "log_dir": str(tmp_path / f"{number}")}
            return {"results": [{**result, "topics": [{"name": TOPIC, "partitions": rows}]}]}
        resource = {"error_code": ErrorCode.none, "error_message": None, "resource_type": 2}
        return {"results": [{**resource, "resource_name": TOPIC, "configs": []}]}

    for api, version in ((apis.DESCRIBE_LOG_DIRS, 1), (apis.DESCRIBE_CONFIGS, 1)):
        monkeypatch.setitem(scripted_brokers._SERVED_MAX, api.key, version)
    for number in in_sync:
        (tmp_path / f"{number}" / f"{TOPIC}-0").mkdir(parents=True)
    partition: dict[str, Any] = {"error_code": ErrorCode.none, "partition_index": 0}
    partition |= {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1, 2]}
    partition |= {"isr_nodes": [1, 2], "offline_replicas": []}
    topic = {"error_code": ErrorCode.none, "name": TOPIC, "topic_id": UUID(int=7)}
    topic |= {"is_internal": False, "partitions": [partition]}
    with (
        scripted_brokers.scripted(answer, [topic]) as brokers,
        Client(brokers.addresses[1]) as client,
    ):
        subject = of_cluster(client, TOPIC)
    assert [one.is_in_sync for one in subject.replicas] == [True, True]
    assert subject.high_watermarks == {0: 10}


def test_files_that_are_not_here_are_named_with_what_to_do(tmp_path: Path) -> None:
    """As if the broker ran elsewhere; one that has nothing to do does not look for them."""
    server = new_server(tmp_path, {})
    try:
        server.start()
        NewTopicMaker(server.address).again("far")
        folder = server.log_dir / "far-0"
        folder.rename(tmp_path / "aside")
        with pytest.raises(BadValue, match=f"^{folder}: cannot be read here.*--log-dirs$"):
            asked(server, "far")
    finally:
        server.kill()
        server.close()


class Elsewhere(Replica):
    """A replica whose folder is there for the driver and not for executors."""

    def segments(self) -> list[int]:
        return [0]


def test_files_that_executors_cannot_read_are_told_in_a_line(
    spark: Any, log_server: Server, topic: str
) -> None:
    subject = asked(log_server, topic)
    missing = Elsewhere(partition=1, broker="9", log_dir="/no/such", topic=topic)
    with pytest.raises(BadValue, match=f"^audit of {topic}: .*/no/such/{topic}-1: cannot") as told:
        examine(spark, replace(subject, replicas=[*subject.replicas, missing]), None)
    assert "\n" not in str(told.value)


def test_of_a_ledger_of_several_topics_those_of_this_one_count(
    spark: Any, log_server: Server, topic: str, tmp_path: Path
) -> None:
    ledger = written(tmp_path, [HEAD, *noted(topic), "another,9,9,9", "another,x,y,z"])
    with Client(log_server.address) as client:
        report = examine(spark, of_cluster(client, topic), ledger, client)
    assert report.is_clean, report.findings
    assert report.ledger == Ledger(acknowledged=3)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((HEAD, "{topic},1,first,7"), "in each row, and one has partition 1, offset first, check"),
        ((HEAD, "{topic},1,-1,7"), "must say where each record is, and one has partition 1, off"),
        ((HEAD, "{topic},1"), "in each row, and one has partition 1, offset None, checksum None"),
        (("partition,offset", "0,0"), "must be CSV whose first line names .*; checksum is not th"),
        ((), "must be CSV whose first line names .*; partition, offset, checksum is not there"),
    ],
)
def test_a_ledger_that_is_none_is_refused_by_name(
    spark: Any, log_server: Server, topic: str, tmp_path: Path, lines: Sequence[str], why: str
) -> None:
    ledger = written(tmp_path, [line.format(topic=topic) for line in lines])
    with pytest.raises(BadValue, match=f"^{ledger}: .*{why}"):
        examine(spark, asked(log_server, topic), ledger)


def test_the_command_ends_with_a_status_for_scripts(
    log_server: Server, topic: str, tmp_path: Path
) -> None:
    """One record of four is lost."""
    ledger = written(tmp_path, [HEAD, *noted(topic), f"{topic},1,3,7"])
    command = [TIDELOG, "audit", topic, "--ledger", ledger.name, "-b", log_server.address]
    done = subprocess.run(
        [*command, "--json"], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    assert not report["is_clean"]
    assert report["counts"] == {"acknowledged and lost": 1}
    assert (report["ledger"]["acknowledged"], report["ledger"]["lost"]) == (4, 1)
    assert [(one["partition"], one["end"], one["records"]) for one in report["partitions"]] == [
        (0, 0, 0),
        (1, 3, 3),
    ]
    nowhere = [*command[:4], "nowhere.csv", *command[5:]]
    done = subprocess.run(nowhere, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tidelog: nowhere.csv: there is no such ledger\n"


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs a command line in the session that all tests share: its status, and what it said."""
    monkeypatch.setattr("tidelog.cli.audit.spark_session", lambda *_, **__: nullcontext(spark))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["audit", TOPIC, *arguments])
        return done.exit_code, done.stdout

    return run


def test_copies_of_log_dirs_are_compared_without_a_cluster(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """The status is 0 if all is well; then a bit of one copy flips."""
    dirs = [write_replica(tmp_path, broker, history(), 300) for broker in ("1", "2")]
    copies = ",".join(map(str, dirs))
    status, said = run("--log-dirs", copies)
    assert (status, said.splitlines()[-1]) == (0, "clean: nothing is wrong")
    damaged = dirs[1] / f"{TOPIC}-0" / file_name(100, LOG)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    status, said = run("--log-dirs", copies, "--json")
    assert status == 1
    assert not json.loads(said)["is_clean"]


def test_copies_of_a_compacted_topic_are_compared_by_their_last_values(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """R6: nothing but who asks knows that it is one."""
    full = [Stored(offset=n, values=[(b"k%d" % (n % 2), b"%d" % n)]) for n in range(4)]
    cleaned = [full[0], *full[2:]]
    dirs = [write_replica(tmp_path, "1", full, 4), write_replica(tmp_path, "2", cleaned, 4)]
    status, said = run("--log-dirs", ",".join(map(str, dirs)), "--compacted")
    assert (status, said.splitlines()[0]) == (0, f"compacted topic {TOPIC}")


def test_a_report_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(topic="orders", is_compacted=True)
    report.partitions.append(
        Audited(
            partition=0,
            start=5,
            end=9,
            brokers=("1", "2"),
            not_in_sync=("3",),
            batches=2,
            records=4,
            size=300,
        )
    )
    show(report)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "compacted topic orders"
    assert lines[1].split("  ")[0] == "PARTITION"
    assert lines[2].split() == ["0", "5", "9", "2", "4", "300", "1,2", "3"]
    assert lines[3:] == ["clean: nothing is wrong"]
    report.ledger = Ledger(acknowledged=7, aged_out=1, lost=2)
    report.findings.append(Finding(kind="gap", partition=0, offset=6, what="broker 1: further on"))
    report.counts.update({"gap": 3, "acknowledged and lost": 2})
    show(report)
    assert capsys.readouterr().out.splitlines()[3:] == [
        "ledger: 7 acknowledged, of these 1 aged out, 0 compacted, 2 lost, 0 changed, 0 repeated",
        "gap: partition 0, offset 6: broker 1: further on",
        "and 4 more",
        "NOT CLEAN: 2 acknowledged and lost, 3 gap",
    ]
