"""Compaction against plain rules, on arbitrary logs (S6, V16): all codecs, several segments,
tombstones, transactions, producers, maps too small for all keys, buffers too small for a
batch. Cleaned again and again, with time going by."""

from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.compaction import RETENTION_MS, Folder, Oracle, last_offsets, read_batches
from tidelog.log import chunks, cleaning
from tidelog.records import key_table
from tidelog.records.key_table import SLOT_BYTES
from tidelog.world.sim.disk import SimDisk

keys = st.sampled_from([b"a", b"b", b"c" * 9, b"", b"e" * 30])
values = st.sampled_from([None, b"", b"v", b"w" * 40])
maybe_keys = st.one_of(keys, keys, keys, keys, keys, st.none())
pairs = st.lists(st.tuples(maybe_keys, values), min_size=1, max_size=4)

steps = st.one_of(
    st.tuples(st.just("plain"), pairs, st.integers(0, 4)),
    st.tuples(st.just("idempotent"), pairs, st.integers(0, 4)),
    st.tuples(st.just("transactional"), pairs, st.integers(0, 2)),
    st.tuples(st.just("log append time"), pairs, st.integers(0, 1)),
    st.tuples(st.just("commit"), st.none(), st.integers(0, 2)),
    st.tuples(st.just("abort"), st.none(), st.integers(0, 2)),
    st.tuples(st.just("roll"), st.none(), st.just(0)),
)


def apply(folder: Folder, step: tuple[str, Any, int]) -> None:
    name, records, number = step
    if name == "roll":
        folder.roll()
    elif name in ("commit", "abort"):
        folder.end_transaction(7 + number, committed=name == "commit")
    elif name == "transactional":
        # Codec 0 for producer 7, others for 8 and 9: a producer's batches need not agree.
        fields = {"producer_id": 7 + number, "producer_epoch": 0, "base_sequence": 0}
        folder.append(records, transactional=True, compression=2 * number, **fields)
    elif name == "idempotent":
        folder.append(
            records, producer_id=number, producer_epoch=1, base_sequence=5, leader_epoch=2
        )
    else:
        folder.append(records, compression=number, log_append_time=name == "log append time")


@given(
    st.lists(steps, min_size=1, max_size=25),
    st.sampled_from([2, 4, 7, 1000]),
    st.sampled_from([70, 200, 1 << 20]),
    st.sampled_from([1, 10_000]),
    st.sampled_from([1, 3, 1 << 14]),
    st.booleans(),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_left_is_what_the_rules_say(
    history: list[tuple[str, Any, int]],
    slots: int,
    size: int,
    bits_share: int,
    first_slots: int,
    regroup: bool,
) -> None:
    folder = Folder(SimDisk())
    for step in history:
        apply(folder, step)
    folder.roll()
    before, state = folder.batches(), folder.state()
    with (
        patch.object(chunks, "CHUNK_BYTES", size),
        patch.object(cleaning, "OUTPUT_BYTES", size),
        patch.object(cleaning, "VERDICTS", 1 if size == 70 else 1000),
        patch.object(key_table, "_BITS_SHARE", bits_share),
        patch.object(key_table, "_FIRST_SLOTS", first_slots),
    ):
        # Four keys a batch: the smallest map may not have room for one batch.
        map_bytes = SLOT_BYTES * (slots + 5)
        segment_bytes = 10_000 if regroup else 1
        clean_up_to_the_end(folder, map_bytes, segment_bytes)
        assert folder.state() == state, "replayed to a map, the log says the same"
        check_only_removed(before, folder)
        folder.now_ms += RETENTION_MS // 2
        clean_up_to_the_end(folder, map_bytes, segment_bytes)
        folder.now_ms += RETENTION_MS
        clean_up_to_the_end(folder, map_bytes, segment_bytes)
        clean_up_to_the_end(folder, map_bytes, segment_bytes)
        assert folder.state() == state
        check_only_removed(before, folder)
        settled = folder.batches()
        clean_up_to_the_end(folder, map_bytes, segment_bytes)
        assert folder.batches() == settled, "there is an end to it"
    check_transactions(folder)


def clean_up_to_the_end(folder: Folder, map_bytes: int, segment_bytes: int) -> None:
    """Passes until nothing is dirty, each compared with the oracle's."""
    first_dirty = 0
    while True:
        active = folder.producers.last_offsets()
        raised = folder.producers.raised_epochs()
        argument = folder.argument(first_dirty)
        batches = {base: folder_batches(folder, base) for base in folder.bases}
        aborted = list(folder.aborted)
        with_data: set[int] = set()
        result = folder.clean(
            first_dirty,
            map_bytes=map_bytes,
            max_segment_bytes=segment_bytes,
            active_producers=active,
            raised_epochs=raised,
        )
        everything = [batch for base in sorted(batches) for batch in batches[base]]
        # A full map knows more than it cleans: what lies behind the end is kept anyway.
        last = last_offsets(everything, first_dirty, argument["upper"], aborted)
        if result["end"] < argument["upper"]:
            check_partial(everything, folder, result["end"], last)
        else:
            oracle = Oracle(
                *(last, result["end"], folder.now_ms, set(active), aborted, with_data),
                raised=set(raised),
            )
            for group in result["groups"]:
                old = [batch for base in group["replaces"] for batch in batches[base]]
                new = [batch.said for batch in folder_batches(folder, group["base"])]
                assert new == oracle.filter(old)
        assert result["end"] > first_dirty or result["end"] == argument["upper"]
        first_dirty = result["end"]
        if first_dirty >= argument["upper"]:
            return


def folder_batches(folder: Folder, base: int) -> list[Any]:
    return read_batches(folder.log(base))


def check_partial(before: list[Any], folder: Folder, end: int, last: dict[bytes, int]) -> None:
    """Of a pass that ended early: everything from its end on is untouched, and what went had a
    later record."""
    kept = {record.offset for batch in folder.batches() for record in batch.records}
    for batch in before:
        for record in batch.records:
            if batch.header.base_offset >= end or (
                record.offset == last.get(record.key or b"?") and record.value is not None
            ):
                assert record.offset in kept


def check_only_removed(before: list[Any], folder: Folder) -> None:
    """Offsets are never renumbered, and no record is changed."""
    records = {record.offset: record for batch in before for record in batch.records}
    headers = {batch.header.base_offset: batch.header for batch in before}
    for batch in folder.batches():
        for record in batch.records:
            assert records[record.offset] == record
        was = headers[batch.header.base_offset]
        same = ("last_offset_delta", "partition_leader_epoch", "producer_id", "base_sequence")
        assert [getattr(was, name) for name in same] == [
            getattr(batch.header, name) for name in same
        ]


def check_transactions(folder: Folder) -> None:
    """A reader that is told of an aborted transaction also meets the marker that ends it."""
    markers = {b.header.base_offset for b in folder.batches() if b.header.is_control and b.records}
    for base in folder.bases:
        for entry in folder.index_entries(base):
            assert entry.last_offset in markers
