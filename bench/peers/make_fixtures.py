"""Makes tests/fixtures/kafka: log dirs written by a real Apache Kafka, for our tests to read.

A broker is started on loopback, written to, stopped, started again (so that the leader epoch
moves on), written to, stopped and copied as `clean`; then started, written to, killed and copied
as `killed`. `manifest.json` lists every record as it was acknowledged, with the run it was
written in (`clean` has runs 1 and 2, `killed` all three), `golden/` what Kafka's own tool prints
for the files. Run it with the project's Python: `python bench/peers/make_fixtures.py`.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.fixture_records import (
    START_MS,
    Writer,
    plain_records,
    write_append_time,
    write_codecs,
    write_compacted,
    write_idempotent,
    write_odd,
    write_preallocated,
    write_transactions,
)
from bench.peers.kafka_peer import Broker, KafkaHome

TARGET = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "kafka"
CLUSTER_ID = "ZHLrbDmXRT-i3nGu6fxwZw"
CODEC_SEGMENT_BYTES = {"none": 1500, "gzip": 700, "snappy": 900, "lz4": 900, "zstd": 700}

BROKER = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "1024",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SMALL = {"index.interval.bytes": "200", "segment.index.bytes": "1024"}
COMPACTED = {
    **SMALL,
    "cleanup.policy": "compact",
    "internal.segment.bytes": "900",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
TOPICS: dict[str, dict[str, str]] = {
    **{
        f"codec-{codec}": {**SMALL, "internal.segment.bytes": str(size)}
        for codec, size in CODEC_SEGMENT_BYTES.items()
    },
    "odd": SMALL,
    "empty": {},
    "idempotent": {**SMALL, "internal.segment.bytes": "900"},
    "transactions": {**SMALL, "internal.segment.bytes": "1200"},
    "compacted": COMPACTED,
    "compacted-transactions": COMPACTED,
    "append-time": {
        **SMALL,
        "internal.segment.bytes": "900",
        "message.timestamp.type": "LogAppendTime",
    },
    "trimmed": {**SMALL, "internal.segment.bytes": "600"},
    "preallocated": {**SMALL, "internal.segment.bytes": "3000", "preallocate": "true"},
}
COPIED_WHEN_KILLED = ("codec-none-0", "transactions-0", "preallocated-0", "append-time-0")


def wait_for_cleaner(log_dir: Path, *folders: str) -> None:
    """Until everything but the active segment was cleaned, and what was replaced is gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = (log_dir / "cleaner-offset-checkpoint").read_text().split("\n")
        wanted = []
        for folder in folders:
            topic, partition = folder.rsplit("-", 1)
            active = max(int(path.stem) for path in (log_dir / folder).glob("*.log"))
            wanted.append(f"{topic} {partition} {active}")
        leftovers = [name for name in folders if any((log_dir / name).glob("*.deleted"))]
        if set(wanted) <= set(lines) and not leftovers:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the cleaner did not finish: {lines}")


def create_topics(admin: AdminClient) -> None:
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result()


def commit_an_offset(address: str) -> None:
    settings = {"bootstrap.servers": address, "group.id": "readers", "log_level": 0}
    consumer = Consumer(settings)
    for _ in range(50):
        try:
            consumer.commit(offsets=[TopicPartition("odd", 0, 3)], asynchronous=False)
            break
        except KafkaException:  # the coordinator is still being made
            time.sleep(0.2)
    consumer.close()


def first_run(broker: Broker, writer: Writer) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    create_topics(admin)
    write_codecs(writer, 0, 5)
    write_odd(writer)
    write_idempotent(writer)
    write_append_time(writer, 0)
    write_transactions(writer, "transactions", "first", leave_open=False)
    write_transactions(writer, "compacted-transactions", "cleaned", leave_open=False)
    write_compacted(writer, 0)
    commit_an_offset(broker.address)
    producer = writer.producer(compression_type="zstd")
    for number in range(8):
        writer.batch(producer, "trimmed", plain_records(number * 4, 4, START_MS))
    for future in admin.delete_records([TopicPartition("trimmed", 0, 14)]).values():
        future.result()
    write_preallocated(writer, 0, 6)
    wait_for_cleaner(broker.log_dir, "compacted-0", "compacted-transactions-0")


def second_run(broker: Broker, writer: Writer) -> Producer:
    write_codecs(writer, 25, 2)
    write_compacted(writer, 1)
    write_transactions(writer, "compacted-transactions", "again", leave_open=False)
    # The one left open is held by the caller: a producer that goes away aborts nothing, but
    # one that is closed might.
    held = write_transactions(writer, "transactions", "second", leave_open=True)
    wait_for_cleaner(broker.log_dir, "compacted-0", "compacted-transactions-0")
    return held


def last_run(writer: Writer) -> Producer:
    write_codecs(writer, 35, 2)
    write_preallocated(writer, 24, 10)
    write_append_time(writer, 16)
    return write_transactions(writer, "transactions", "third", leave_open=True)


def copy(log_dir: Path, name: str, folders: tuple[str, ...] | None = None) -> None:
    target = TARGET / name
    target.mkdir(parents=True)
    for path in sorted(log_dir.iterdir()):
        if path.is_file() and path.name not in (".lock", "bootstrap.checkpoint"):
            shutil.copyfile(path, target / path.name)
        if path.is_dir() and (folders is None or path.name in folders):
            shutil.copytree(path, target / path.name)


def write_manifest(writer: Writer) -> None:
    """One line a record, so that a change reads well in a diff."""
    parts = []
    for folder in sorted(writer.records):
        rows = sorted(writer.records[folder], key=lambda row: int(row["offset"]))
        lines = ",\n".join(map(json.dumps, rows))
        parts.append(f"{json.dumps(folder)}: [\n{lines}\n]")
    transactions = ",\n".join(map(json.dumps, writer.transactions))
    text = f'{{"records": {{\n{",".join(parts)}\n}},\n"transactions": [\n{transactions}\n]}}\n'
    (TARGET / "manifest.json").write_text(text)


def write_golden(home: KafkaHome, name: str) -> None:
    """What Kafka's tool prints, one file a folder and mode; what it says on the error stream
    follows in a file of its own."""
    root = TARGET / name
    golden = TARGET / "golden" / name
    golden.mkdir(parents=True)
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        files = [f"{folder.name}/{path.name}" for path in sorted(folder.glob("*.*"))]
        known = [file for file in files if not file.endswith(".metadata")]
        indexes = [file for file in files if file.endswith("index") and ".txn" not in file]
        logs = [file for file in files if file.endswith(".log")]
        runs: list[tuple[str, list[str], list[str]]] = [
            ("batches", known, []),
            ("sanity", indexes, ["--index-sanity-check"]),
        ]
        if name == "clean" and not folder.name.startswith("__"):
            runs.append(("records", logs, ["--print-data-log"]))
        if folder.name == "codec-none-0":
            runs.append(("deep", logs, ["--deep-iteration"]))
        for mode, names, flags in runs:
            outputs = [home.dump(names, *flags, cwd=root)]
            if outputs[0].status != 0:
                # The tool dies at a file it does not like: then each has a run of its own.
                outputs = [home.dump([each], *flags, cwd=root) for each in names]
            out = "".join(output.out for output in outputs)
            (golden / f"{folder.name}.{mode}.txt").write_text(out)
            complaints = "".join(output.err for output in outputs).replace(f"{root}/", "")
            if complaints:
                lines = [each for each in complaints.split("\n") if not each.startswith("\tat ")]
                (golden / f"{folder.name}.{mode}.stderr.txt").write_text("\n".join(lines))


def main() -> int:
    home = KafkaHome.find()
    if home is None:
        return 1
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kafka-fixtures-") as folder:
        broker = Broker(home, Path(folder) / "node", BROKER)
        writer = Writer(broker.address)
        broker.format(CLUSTER_ID)
        try:
            broker.start()
            first_run(broker, writer)
            broker.stop()
            broker.start()
            writer.run = 2
            held = [second_run(broker, writer)]
            broker.stop()
            copy(broker.log_dir, "clean")
            broker.start()
            writer.run = 3
            held.append(last_run(writer))
        finally:
            broker.kill()
        copy(broker.log_dir, "killed", COPIED_WHEN_KILLED)
        write_manifest(writer)
    for name in ("clean", "killed"):
        write_golden(home, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
