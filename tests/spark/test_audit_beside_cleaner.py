"""An audit of a compacted topic while cleaned segments take the place of others (P8, R6)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.stored_replicas import Stored, history, replicas
from tidelog.log import txn_index
from tidelog.log.files import DELETED, LOG, SWAP, TXN_INDEX, file_name
from tidelog.spark.audit import Audit
from tidelog.spark.audited_files import Replica, Subject

OTHER = (b"k", b"other")


def compacted(folder: Path, *histories: Sequence[Stored], watermark: int) -> Subject:
    return replace(replicas(folder, *histories, watermark=watermark), is_compacted=True)


def listed_before(subject: Subject, bases: list[int]) -> Subject:
    """As its files were when they were listed."""

    class Listed(Replica):
        def segments(self) -> list[int]:
            return bases

    names = Replica.__slots__
    fields = [{name: getattr(one, name) for name in names} for one in subject.replicas]
    return replace(subject, replicas=[Listed(**one) for one in fields])


def renamed(path: Path, suffix: str) -> None:
    path.rename(f"{path}{suffix}")


def test_what_lies_in_the_old_segment_and_the_new_is_there_once(spark: Any, tmp_path: Path) -> None:
    """A3: two segments have become one since they were listed."""
    batches = history()
    subject = listed_before(compacted(tmp_path, batches, batches, watermark=300), [0, 100, 200])
    first = subject.replicas[0]
    new = Path(first.path(0)).read_bytes() + Path(first.path(100)).read_bytes()
    Path(first.path(0)).write_bytes(new)
    renamed(Path(first.path(100)), DELETED)
    report = Audit(spark, subject).run()
    assert report.is_clean, report.findings


@pytest.mark.parametrize("is_listed_before", [False, True])
def test_a_segment_that_waits_for_its_name_is_read(
    spark: Any, tmp_path: Path, is_listed_before: bool
) -> None:
    batches = history()
    other = [*batches]
    other[3] = replace(batches[3], values=[OTHER] * 5)
    subject = compacted(tmp_path, batches, other, watermark=300)
    renamed(Path(subject.replicas[1].path(0)), SWAP)
    if is_listed_before:
        subject = listed_before(subject, [0, 100, 200])
    report = Audit(spark, subject).run()
    assert report.partitions[0].start == 0
    differing = [one.offset for one in report.findings if one.kind == "replicas differ"]
    assert differing == [15, 16, 17, 18, 19]


ABORTED = [
    Stored(offset=0, values=[(b"a", b"1"), (b"b", b"1")]),
    Stored(offset=2, values=[(b"a", b"2")], is_transactional=True),
    Stored(offset=4, values=[(b"c", b"1")], is_transactional=True),
]
"""If the index says so of offset 2, where a segment begins, as at 4."""


def note_aborted(replica: Replica) -> Path:
    path = Path(replica.folder) / file_name(4, TXN_INDEX)
    path.write_bytes(txn_index.encode([txn_index.AbortedTransaction(7, 2, 3, 2)]))
    return path


def test_what_was_aborted_is_known_while_its_index_waits_for_its_name(
    spark: Any, tmp_path: Path
) -> None:
    subject = compacted(tmp_path, ABORTED, [ABORTED[0], ABORTED[2]], watermark=5)
    renamed(note_aborted(subject.replicas[0]), SWAP)
    renamed(Path(subject.replicas[0].path(4)), SWAP)
    report = Audit(spark, subject).run()
    assert report.is_clean, report.findings


def test_what_was_aborted_is_known_of_a_segment_that_was_replaced(
    spark: Any, tmp_path: Path
) -> None:
    """The one that has taken its place has no such records, and no index of them."""
    cleaned = [ABORTED[0], ABORTED[2]]
    subject = compacted(tmp_path, ABORTED, cleaned, watermark=5)
    subject = listed_before(subject, [0, 2, 4])
    first, second = subject.replicas
    renamed(note_aborted(first), DELETED)
    for base in (2, 4):
        renamed(Path(first.path(base)), DELETED)
    for replica in (first, second):
        Path(replica.path(0)).write_bytes(b"".join(one.encoded() for one in cleaned))
    for base in (2, 4):
        Path(second.folder, file_name(base, LOG)).write_bytes(b"")
    report = Audit(spark, subject).run()
    assert report.is_clean, report.findings


def test_what_has_a_newer_value_by_now_need_not_be_there(spark: Any, tmp_path: Path) -> None:
    """R6: more was written after it was asked how far all is committed, and one replica was cleaned
    up to there before its files were listed: also of the last that had been committed by then."""
    full = [
        Stored(offset=0, values=[(b"a", b"1"), (b"b", b"1")]),
        Stored(offset=2, values=[(b"c", b"1")]),
        Stored(offset=3, values=[(b"a", b"2"), (b"c", b"2")]),
    ]
    cleaned = [Stored(offset=1, values=[(b"b", b"1")]), full[2]]
    report = Audit(spark, compacted(tmp_path, full, cleaned, watermark=3)).run()
    assert report.is_clean, report.findings
    lost = [Stored(offset=0, values=[(b"a", b"1")]), full[2]]
    report = Audit(spark, compacted(tmp_path / "lost", full, lost, watermark=3)).run()
    assert report.counts == {"last value differs": 1}
    assert (report.findings[0].offset, report.findings[0].what) == (1, "only brokers 1 have it")
