"""The audit finds what is wrong with replicas, and nothing where nothing is (P8, R6)."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.stored_replicas import BROKERS, TOPIC, Stored, history, replicas
from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.log import txn_index
from tidelog.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, format_offsets
from tidelog.log.files import DELETED, LOG, TXN_INDEX, file_name
from tidelog.records.checksum import crc32c
from tidelog.spark.audit import Audit
from tidelog.spark.audit_report import Report
from tidelog.spark.audited_files import Replica, Subject, of_log_dirs


def ledger_of(spark: Any, batches: Sequence[Stored]) -> Any:
    rows = [
        (0, batch.offset + number, zlib.crc32(value or b""))
        for batch in batches
        for number, (_, value) in enumerate(batch.values)
    ]
    return spark.createDataFrame(rows, "partition int, offset bigint, checksum bigint")


def audited(spark: Any, subject: Subject, ledger: Any = None) -> Report:
    return Audit(spark, subject, None, ledger).run()


def test_replicas_that_are_the_same_are_clean(spark: Any, tmp_path: Path) -> None:
    batches = history()
    subject = replicas(tmp_path, batches, batches, batches)
    report = audited(spark, subject, ledger_of(spark, batches))
    assert report.findings == []
    assert report.is_clean
    (partition,) = report.partitions
    assert (partition.start, partition.end, partition.batches, partition.records) == (
        0,
        300,
        60,
        300,
    )
    assert partition.brokers == BROKERS
    assert report.ledger is not None
    assert (report.ledger.acknowledged, report.ledger.lost) == (300, 0)


def test_what_is_above_the_high_watermark_may_differ(spark: Any, tmp_path: Path) -> None:
    batches = history()
    shorter = batches[:58]
    assert audited(spark, replicas(tmp_path, batches, shorter, shorter, watermark=290)).is_clean


def test_copies_that_do_not_say_how_far_they_are_committed_are_refused(tmp_path: Path) -> None:
    """P8: nothing of them would be compared, and they would be clean."""
    batches = history(3)
    subject = replicas(tmp_path, batches, batches[:1], watermark=15)
    first, second = (one.log_dir for one in subject.replicas)
    (Path(first) / HIGH_WATERMARKS).unlink()
    found = of_log_dirs([first, second], TOPIC, is_compacted=False)
    assert found.high_watermarks == {0: 15}
    (Path(second) / HIGH_WATERMARKS).write_bytes(format_offsets({TopicPartition("other", 0): 1}))
    with pytest.raises(BadValue, match="no replication-offset-checkpoint says how far"):
        of_log_dirs([first, second], TOPIC, is_compacted=False)


def test_of_replicas_that_never_had_a_record_nothing_is_committed(tmp_path: Path) -> None:
    place = tmp_path / f"{TOPIC}-0"
    place.mkdir()
    (place / file_name(0, LOG)).touch()
    found = of_log_dirs([str(tmp_path)], TOPIC, is_compacted=False)
    assert found.high_watermarks == {0: 0}


def test_a_bit_that_flipped_is_found(spark: Any, tmp_path: Path) -> None:
    batches = history()
    subject = replicas(tmp_path, batches, batches, batches)
    path = Path(subject.replicas_of(0)[1].path(100))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    report = audited(spark, subject)
    (damage,) = [one for one in report.findings if one.kind == "damage"]
    assert (damage.partition, damage.offset) == (0, 195)
    assert "broker 2" in damage.what
    assert "bad CRC" in damage.what
    (differs,) = [one for one in report.findings if one.kind == "replicas differ"]
    assert (differs.offset, differs.what) == (195, "only brokers 1, 3 have it")


def test_a_batch_that_is_another_one_elsewhere_is_found(spark: Any, tmp_path: Path) -> None:
    batches = history()
    other = [*batches]
    other[30] = replace(batches[30], values=[(b"k", b"other")] * 5)
    report = audited(spark, replicas(tmp_path, batches, other, batches))
    assert report.counts == {"replicas differ": 1}
    assert report.findings[0].offset == 150
    assert report.findings[0].what == "not the same on brokers 1, 2, 3"


def test_a_gap_and_a_missing_end_are_found(spark: Any, tmp_path: Path) -> None:
    batches = history()
    report = audited(spark, replicas(tmp_path, batches, batches[:10] + batches[11:], batches[:50]))
    kinds = {(one.kind, one.offset) for one in report.findings if one.kind != "replicas differ"}
    assert kinds == {("gap", 50), ("behind", 250)}
    assert report.counts["replicas differ"] == 11


def test_a_replica_that_has_lost_its_front_is_found(spark: Any, tmp_path: Path) -> None:
    """P8: no segment leaves before a checkpoint names a log start behind it, so that one that is
    missing there is no sign of age, and nothing that the other replicas have is left out."""
    batches = history()
    subject = replicas(tmp_path, batches, batches)
    Path(subject.replicas_of(0)[0].path(0)).unlink()
    report = audited(spark, subject, ledger_of(spark, batches))
    assert report.partitions[0].start == 0
    assert report.counts == {"gap": 1, "replicas differ": 20, "acknowledged and lost": 100}
    (gap,) = [one for one in report.findings if one.kind == "gap"]
    assert (gap.offset, gap.what) == (0, "broker 1: begins only at 100")
    assert report.ledger is not None
    assert (report.ledger.aged_out, report.ledger.lost) == (0, 100)


def test_what_was_removed_below_a_log_start_is_no_loss(spark: Any, tmp_path: Path) -> None:
    """A log dir of tidelog's says where each log starts, one of Kafka's only where that is within
    a segment."""
    batches = history()
    said = {"ours": format_offsets({TopicPartition(TOPIC, 0): 100}), "kafka's": b"0\n0\n"}
    for name, log_starts in said.items():
        subject = replicas(tmp_path / name, batches, batches)
        first = subject.replicas_of(0)[0]
        Path(first.path(0)).unlink()
        (Path(first.log_dir) / LOG_STARTS).write_bytes(log_starts)
        report = audited(spark, subject)
        assert report.is_clean, report.findings
        assert report.partitions[0].start == 100


def test_a_record_that_is_there_twice_is_found(spark: Any, tmp_path: Path) -> None:
    """A3: the same sequence of the same producer, at another offset."""
    batches = history()
    batches[40] = replace(batches[40], sequence=batches[39].sequence)
    report = audited(spark, replicas(tmp_path, batches, batches))
    assert report.counts == {"duplicate": 2}
    assert "is there 2 times" in report.findings[0].what


def test_sequences_that_begin_again_after_the_last_are_no_repeats(
    spark: Any, tmp_path: Path
) -> None:
    """A3: a producer counts to 2^31 - 1 and then from 0 on."""
    for distance, counts in ((1 << 31, {}), ((1 << 31) - 1, {"duplicate": 1})):
        places = (0, distance)
        batches = [Stored(offset=at, values=[(b"%d" % at, b"v")], sequence=5) for at in places]
        folder = tmp_path / str(distance)
        subject = replicas(folder, batches, watermark=distance + 1)
        assert audited(spark, replace(subject, is_compacted=True)).counts == counts


def test_what_was_acknowledged_must_be_there_as_it_was(spark: Any, tmp_path: Path) -> None:
    batches = history()
    more = [*batches, Stored(offset=300, values=[(b"k", b"lost")])]
    more[20] = replace(batches[20], values=[(b"k", b"changed"), *batches[20].values[1:]])
    noted = ledger_of(spark, more)
    report = audited(spark, replicas(tmp_path, batches, batches), noted.union(noted.limit(1)))
    assert report.counts == {
        "acknowledged and lost": 2,
        "acknowledged and changed": 2,
        "acknowledged twice": 1,
    }
    assert report.ledger is not None
    assert (report.ledger.lost, report.ledger.changed, report.ledger.repeated) == (1, 1, 1)


class ListedBefore(Replica):
    """A replica whose first segment went after its files were listed."""

    def segments(self) -> list[int]:
        return [0, *super().segments()]


def test_an_acknowledged_record_without_a_value_is_there_too(spark: Any, tmp_path: Path) -> None:
    batches = [Stored(offset=0, values=[(b"a", None), (b"b", b""), (b"c", b"v")])]
    subject = replicas(tmp_path, batches, batches, watermark=3)
    report = audited(spark, subject, ledger_of(spark, batches))
    assert report.is_clean, report.findings
    assert report.ledger is not None
    assert (report.ledger.acknowledged, report.ledger.lost) == (3, 0)


def test_records_that_cannot_be_read_under_a_good_checksum_are_damage(
    spark: Any, tmp_path: Path
) -> None:
    batches = history(6)
    subject = replicas(tmp_path, batches, batches, watermark=30)
    for replica in subject.replicas:
        path = Path(replica.path(20))
        data = bytearray(path.read_bytes())
        data[61] = 0x7F  # The length of the first record.
        size = 12 + int.from_bytes(data[8:12], "big")
        data[17:21] = crc32c(bytes(data[21:size])).to_bytes(4, "big")
        path.write_bytes(data)
    report = audited(spark, subject, ledger_of(spark, batches[:2]))
    assert report.counts == {"damage": 2}
    assert report.findings[0].offset == 20


def test_a_compacted_topic_whose_files_go_on_being_replaced_is_to_be_tried_again(
    spark: Any, tmp_path: Path
) -> None:
    batches = history(6)
    subject = replace(replicas(tmp_path, batches, watermark=30), is_compacted=True)
    listed = subject.replicas[0].segments()
    for base in listed:
        Path(subject.replicas[0].path(base)).unlink()

    class Listed(Replica):
        def segments(self) -> list[int]:
            return listed

    fields = {name: getattr(subject.replicas[0], name) for name in Replica.__slots__}
    gone = replace(subject, replicas=[Listed(**fields)])
    with pytest.raises(BadValue, match="being compacted; try again"):
        audited(spark, gone)


def test_what_retention_removes_meanwhile_is_not_missed(spark: Any, tmp_path: Path) -> None:
    batches = history()
    subject = replicas(tmp_path, batches, batches)
    first = [Path(one.path(0)) for one in subject.replicas_of(0)]
    first[0].rename(f"{first[0]}{DELETED}")
    first[1].unlink()
    fields = [{name: getattr(one, name) for name in Replica.__slots__} for one in subject.replicas]
    listed = replace(subject, replicas=[ListedBefore(**one) for one in fields])
    report = Audit(spark, listed, lambda: {0: 100}, ledger_of(spark, batches)).run()
    assert report.is_clean, report.findings
    assert report.partitions[0].start == 100
    assert report.ledger is not None
    assert report.ledger.aged_out == 100
    missed = Audit(spark, listed, lambda: {0: 0}, None).run()
    assert "the file has gone" in missed.findings[0].what


def test_compacted_replicas_agree_on_the_last_value_of_each_key(spark: Any, tmp_path: Path) -> None:
    """R6: one has been cleaned further than the other, and has removed a tombstone."""
    full = [
        Stored(offset=0, values=[(b"a", b"1"), (b"b", b"1"), (b"gone", b"1")]),
        Stored(offset=3, values=[(b"a", b"2"), (b"gone", None)]),
        Stored(offset=5, values=[(b"c", b"1")]),
    ]
    cleaned = [Stored(offset=1, values=[(b"b", b"1")]), Stored(offset=3, values=[(b"a", b"2")])]
    cleaned.append(full[2])
    subject = replace(replicas(tmp_path, full, cleaned, watermark=6), is_compacted=True)
    assert audited(spark, subject).is_clean
    wrong = [*cleaned[:1], Stored(offset=3, values=[(b"a", b"3")]), full[2]]
    other = replace(replicas(tmp_path / "b", full, wrong, watermark=6), is_compacted=True)
    assert set(audited(spark, other).counts) == {"replicas differ", "last value differs"}


@pytest.mark.parametrize(
    "changed",
    [
        {"timestamp": 1001},
        {"headers": (("origin", b"elsewhere"),)},
        {"values": [(b"c", None)]},
    ],
)
def test_compacted_replicas_have_the_same_records_whole(
    spark: Any, tmp_path: Path, changed: dict[str, Any]
) -> None:
    """R6: time and headers too, and what is a key in one is no value in the other."""
    kept = [Stored(offset=0, values=[(b"a", b"1")]), Stored(offset=5, values=[(None, b"c")])]
    other = [kept[0], replace(kept[1], **changed)]
    subject = replace(replicas(tmp_path, kept, other, watermark=6), is_compacted=True)
    report = audited(spark, subject)
    differing = [one for one in report.findings if one.kind == "replicas differ"]
    assert [(one.offset, one.what) for one in differing] == [(5, "brokers 1, 2")]


def test_what_was_aborted_is_no_last_value_of_a_compacted_topic(spark: Any, tmp_path: Path) -> None:
    """R6: a cleaner removes it, from one replica sooner than from another. The index of a later
    segment, where its marker was, says that it was."""
    full = [
        Stored(offset=0, values=[(b"a", b"1"), (b"b", b"1")]),
        Stored(offset=2, values=[(b"a", b"2")], is_transactional=True),
        Stored(offset=4, values=[(b"c", b"1")], is_transactional=True),
    ]
    cleaned = [full[0], full[2]]
    subject = replace(replicas(tmp_path, full, cleaned, watermark=5), is_compacted=True)
    assert set(audited(spark, subject).counts) == {"last value differs"}
    index = Path(subject.replicas[0].folder) / file_name(4, TXN_INDEX)
    index.write_bytes(txn_index.encode([txn_index.AbortedTransaction(7, 2, 3, 2)]))
    report = audited(spark, subject)
    assert report.is_clean, report.findings


def test_compaction_loses_nothing_where_no_log_is(spark: Any, tmp_path: Path) -> None:
    """What was acknowledged behind the end of a log, or in a partition that is not there, is lost;
    what a cleaner has removed is not."""
    kept = [Stored(offset=0, values=[(b"a", b"1")]), Stored(offset=2, values=[(b"b", b"2")])]
    subject = replace(replicas(tmp_path, kept, kept, watermark=3), is_compacted=True)
    rows = [(0, 1, 7), (0, 2, zlib.crc32(b"2")), (0, 3, 7), (0, 999, 7), (7, 0, 7)]
    noted = spark.createDataFrame(rows, "partition int, offset bigint, checksum bigint")
    report = audited(spark, subject, noted)
    assert report.ledger is not None
    assert (report.ledger.compacted, report.ledger.lost) == (1, 3)
    assert report.counts == {"acknowledged and lost": 5}
    assert {(one.partition, one.offset, one.what) for one in report.findings} == {
        (0, 3, "broker 1: ends at 3"),
        (0, 3, "broker 2: ends at 3"),
        (0, 999, "broker 1: ends at 3"),
        (0, 999, "broker 2: ends at 3"),
        (7, 0, "there is no such partition"),
    }


def test_folders_without_the_topic_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=f"topic nothing: there is no replica of it in {tmp_path}"):
        of_log_dirs([str(tmp_path)], "nothing", is_compacted=False)
    with pytest.raises(BadValue, match="log dir /no/such: No such file"):
        of_log_dirs(["/no/such"], TOPIC, is_compacted=False)
