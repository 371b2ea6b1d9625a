"""Kafka's small text files: what is written is what Kafka reads, and garbage is refused by name
(S8, F12)."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.log.checkpoints import (
    format_epochs,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
    read_offsets,
    write_offsets,
)
from tidelog.records.checksum import crc32c
from tidelog.world.sim.disk import Crashed, SimDisk

INT64_MAX = (1 << 63) - 1

topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249).filter(
    lambda name: name not in (".", "..")
)
partitions = st.builds(TopicPartition, topics, st.integers(0, (1 << 31) - 1))
offsets = st.integers(0, INT64_MAX)
lines = st.lists(
    st.text("0123456789 -abc\u00b2\u0663\u2028\r\x0b", max_size=12) | st.just("9" * 5000),
    max_size=5,
)


def test_offsets_are_written_as_kafka_reads_them_with_a_checksum_as_the_last_entry() -> None:
    """S8, F12."""
    entries = {TopicPartition("orders", 1): 99, TopicPartition("orders", 0): 1234}
    body = b"0\n3\norders 0 1234\norders 1 99\n"
    assert format_offsets(entries) == body + b"##crc32c 0 %d\n" % crc32c(body)
    assert format_offsets({}) == b"0\n1\n##crc32c 0 %d\n" % crc32c(b"0\n1\n")


def test_offsets_that_kafka_has_written_are_read() -> None:
    """S8: it gives them no checksum."""
    assert parse_offsets("c", b"0\n2\norders 0 1234\norders 1 99\n") == {
        TopicPartition("orders", 0): 1234,
        TopicPartition("orders", 1): 99,
    }
    assert parse_offsets("c", b"0\n0\n") == {}


def test_epochs_are_written_as_kafka_writes_them() -> None:
    assert format_epochs([(0, 0), (4, 17)]) == b"0\n2\n0 0\n4 17\n"


@given(st.dictionaries(partitions, offsets, max_size=8))
def test_offsets_are_read_back_as_they_were_written(entries: dict[TopicPartition, int]) -> None:
    assert parse_offsets("c", format_offsets(entries)) == entries


@given(st.dictionaries(partitions, offsets, max_size=3), st.data())
def test_offsets_with_another_byte_than_was_written_are_refused(
    entries: dict[TopicPartition, int], data: st.DataObject
) -> None:
    """F12: one that was changed, added or lost, also where the rest means the same."""
    written = format_offsets(entries)
    begin = data.draw(st.integers(0, len(written)))
    end = data.draw(st.integers(begin, min(len(written), begin + 1)))
    damaged = written[:begin] + data.draw(st.binary(max_size=1)) + written[end:]
    assume(damaged != written)
    with pytest.raises(BadValue, match=r"some-checkpoint: "):
        parse_offsets("some-checkpoint", damaged)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), max_size=8))
def test_epochs_are_read_back_as_they_were_written(steps: list[tuple[int, int]]) -> None:
    entries, epoch, start = [], -1, -1
    for more_epochs, more_offsets in steps:
        epoch, start = epoch + more_epochs, start + more_offsets
        entries.append((epoch, start))
    assert parse_epochs("c", format_epochs(entries)) == entries


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_line_endings_and_a_missing_last_one_do_not_matter(ending: bytes) -> None:
    data = ending.join([b"0", b"1", b"orders 0 7"])
    assert parse_offsets("c", data) == {TopicPartition("orders", 0): 7}
    assert parse_offsets("c", data + ending) == {TopicPartition("orders", 0): 7}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1"),
        ("1\n0\n", "line 1"),
        ("0\n", "line 2"),
        ("0\nx\n", "line 2"),
        ("0\n-1\n", "line 2"),
        ("0\n\u00b2\n", "line 2"),
        ("0\n2\norders 0 7\n", "1 entries where line 2 says 2"),
        ("0\n1\norders 0 7\norders 1 7\n", "2 entries where line 2 says 1"),
        ("0\n1\norders 0\n", "topic partition offset"),
        ("0\n1\nor/ders 0 7\n", "topic partition offset"),
        ("0\n1\norders x 7\n", "'x'"),
        ("0\n1\norders -1 7\n", "'-1'"),
        ("0\n1\norders 0 -7\n", "'-7'"),
        ("0\n1\norders 0 9223372036854775808\n", "from 0 on"),
        ("0\n1\norders 0 " + "9" * 5000 + "\n", "from 0 on"),
        ("0\n1\norders 0 \u0663\n", "from 0 on"),
    ],
)
def test_bad_offset_checkpoint_is_refused_by_name_and_line(text: str, complaint: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_offsets("/data/some-checkpoint", text.encode())
    assert "/data/some-checkpoint" in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "0\n1\n-1 0\n",
        "0\n1\n3 -5\n",
        "0\n2\n3 10\n3 20\n",
        "0\n2\n9 10\n4 20\n",
        "0\n2\n3 10\n4 10\n",
        "0\n1\n3\n",
        "0\n1\n3 4 5\n",
    ],
)
def test_bad_epoch_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="leader-epoch-checkpoint"):
        parse_epochs("leader-epoch-checkpoint", text.encode())


@given(st.binary(max_size=60) | lines.map(lambda parts: "\n".join(parts).encode()))
def test_garbage_is_refused_and_nothing_worse(data: bytes) -> None:
    for parse in (parse_offsets, parse_epochs, parse_partition_metadata, parse_meta_properties):
        complaint = "c: "
        try:
            parse("c", data)
        except BadValue as error:
            complaint = str(error)
        assert complaint.startswith("c: ")


@given(lines)
def test_entries_that_are_garbage_are_refused_and_nothing_worse(parts: list[str]) -> None:
    data = "\n".join(["0", str(len(parts)), *(f"orders {part}" for part in parts)]).encode()
    for parse in (parse_offsets, parse_epochs):
        try:
            found = parse("c", data)
        except BadValue:
            continue
        values = found.values() if isinstance(found, dict) else [start for _, start in found]
        assert all(0 <= value <= INT64_MAX for value in values)


@given(st.binary(min_size=16, max_size=16))
def test_topic_id_survives_partition_metadata(topic_id: bytes) -> None:
    data = format_partition_metadata(topic_id)
    assert data.startswith(b"version: 0\ntopic_id: ")
    assert len(data) == 43, "as long as Kafka's: no padding, no last line end"
    assert parse_partition_metadata("p", data) == topic_id


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\n",
        b"version: 0\ntopic_id: AAAA",
        b"version: 0\ntopic_id: !!!!!!!!!!!!!!!!!!!!!!",
        b"version 0",
        b"\xff\xfe",
    ],
)
def test_bad_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(BadValue, match=r"partition\.metadata"):
        parse_partition_metadata("partition.metadata", data)


def test_meta_properties_are_read_with_comments_and_spaces_as_java_writes_them() -> None:
    text = b"#\n#Sun Nov 15 11:15:23 UTC 2026\nnode.id=1\nversion=1\ncluster.id = ZHLr-i3_g\n\n"
    found = parse_meta_properties("m", text)
    assert found == {"node.id": "1", "version": "1", "cluster.id": "ZHLr-i3_g"}
    assert parse_meta_properties("m", format_meta_properties(found)) == found


@pytest.mark.parametrize("data", [b"", b"version=2\n", b"broker.id=1\n", b"version\n", b"\xff"])
def test_bad_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(BadValue, match=r"meta\.properties"):
        parse_meta_properties("meta.properties", data)


def test_checkpoint_is_the_old_one_or_the_new_one_whenever_the_power_fails() -> None:
    """S8, X27: written by rename, fsynced."""
    old, new = {TopicPartition("a", 0): 1}, {TopicPartition("a", 0): 2, TopicPartition("b", 0): 3}
    seen = set()
    for seed in range(60):
        disk = SimDisk(seed)
        disk.make_folder("/data")
        disk.sync_folder("/")
        write_offsets(disk, "/data/c", old)
        disk.crash_at(seed % 7, "middle")
        try:
            write_offsets(disk, "/data/c", new)
            done = True
        except Crashed:
            done = False
        disk.machine_dies("some")
        found = read_offsets(disk, "/data/c")
        assert found == new if done else found in (old, new)
        seen.add(len(found))
    assert seen == {1, 2}


def test_missing_checkpoint_is_an_empty_one() -> None:
    assert read_offsets(SimDisk(), "/nothing") == {}
