"""The files of a znode tree: an unfinished write at the end is cut, any other damage is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.coordinated import FOLDER, Embedded
from tidelog.base.coordination import Create, Delete, SetData
from tidelog.base.errors import BadValue
from tidelog.world.sim.disk import SimDisk
from tidelog.world.znode_files import load
from tidelog.world.znode_frames import HEADER_SIZE, MAGIC, frame, read_frames
from tidelog.world.znode_records import (
    JOURNAL,
    SNAPSHOT,
    Header,
    encode_node,
    encode_transaction,
    read_header,
    read_nodes,
    read_transactions,
)
from tidelog.world.znode_tree import When, Znode

JOURNAL_PATH = f"{FOLDER}/journal-{(1 << 32) + 1:016x}"
SNAPSHOT_PATH = f"{FOLDER}/snapshot"
HEADER_BYTES = 44
"""The frame with a file's header."""


def disk_with_three_writes() -> SimDisk:
    place = Embedded()
    for number in range(3):
        place.write(Create(path=f"/n{number}", data=b"data %d" % number))
    place.disk.process_dies()
    return place.disk


def names(disk: SimDisk) -> list[str]:
    return load(disk, FOLDER).tree.children("/")


def replace(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, "create")
    file.truncate(0)
    file.pwrite(data, 0)


def frame_ends(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(data):
        size = int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12])
        ends.append(ends[-1] + HEADER_SIZE + size)
    return ends


# The journal.


def test_a_journal_cut_anywhere_gives_the_writes_that_are_whole() -> None:
    disk = disk_with_three_writes()
    whole = disk.view()[JOURNAL_PATH]
    ends = frame_ends(whole)
    assert ends[1] == HEADER_BYTES
    for size in range(HEADER_BYTES, len(whole) + 1):
        twin = disk.fork()
        twin.open(JOURNAL_PATH, "write").truncate(size)
        done = sum(end <= size for end in ends[2:])
        loaded = load(twin, FOLDER)
        assert loaded.tree.children("/") == [f"n{number}" for number in range(done)]
        assert loaded.unfinished_bytes == size - ends[done + 1]


def test_zeros_behind_the_journal_are_an_unfinished_write() -> None:
    disk = disk_with_three_writes()
    file = disk.open(JOURNAL_PATH, "write")
    file.truncate(file.size() + 5_000)
    assert load(disk, FOLDER).unfinished_bytes == 5_000
    assert names(disk) == ["n0", "n1", "n2"]


def test_any_flipped_bit_in_the_journal_is_refused_unless_it_is_in_the_last_write() -> None:
    disk = disk_with_three_writes()
    whole = disk.view()[JOURNAL_PATH]
    last = frame_ends(whole)[-2]
    for position in range(len(whole)):
        twin = disk.fork()
        twin.flip_bit(JOURNAL_PATH, position, position % 8)
        if position < last:
            with pytest.raises(BadValue, match=JOURNAL_PATH):
                load(twin, FOLDER)
        else:
            assert names(twin) == ["n0", "n1"]


def test_a_refusal_names_the_file_the_place_and_what_to_do() -> None:
    disk = disk_with_three_writes()
    disk.flip_bit(JOURNAL_PATH, HEADER_BYTES + 30)
    with pytest.raises(BadValue) as caught:
        load(disk, FOLDER)
    assert str(caught.value) == (
        f"{JOURNAL_PATH}: what stands at byte {HEADER_BYTES} is damaged, and good data follows at "
        "byte 110: restore the folder from a backup"
    )


def test_a_refused_tree_is_left_as_it_is() -> None:
    disk = disk_with_three_writes()
    disk.flip_bit(JOURNAL_PATH, HEADER_BYTES + 30)
    before = disk.view()
    with pytest.raises(BadValue):
        Embedded(disk)
    assert disk.view() == before


def test_data_that_looks_like_a_frame_does_not_make_an_unfinished_write_damage() -> None:
    """A frame says where it begins, and text never contains its first byte."""
    place = Embedded()
    forged = frame(encode_transaction(When(9 << 32, 0), [Delete(path="/a")]), 0)
    place.write(Create(path="/a", data=forged))
    place.write(SetData(path="/a", data=forged * 3))
    size = place.disk.open(JOURNAL_PATH, "read").size()
    place.disk.process_dies()
    place.disk.open(JOURNAL_PATH, "write").truncate(size - 1)
    loaded = load(place.disk, FOLDER)
    assert loaded.unfinished_bytes > 0
    assert loaded.tree.get("/a").data == forged
    with pytest.raises(UnicodeDecodeError):
        MAGIC.decode()


# The snapshot and the pair.


def test_any_flipped_bit_in_the_snapshot_is_refused() -> None:
    disk = disk_with_three_writes()
    disk = Embedded(disk).disk
    for position in range(len(disk.view()[SNAPSHOT_PATH])):
        twin = disk.fork()
        twin.flip_bit(SNAPSHOT_PATH, position, position % 8)
        with pytest.raises(BadValue, match=SNAPSHOT_PATH):
            load(twin, FOLDER)


def test_a_snapshot_cut_anywhere_is_refused() -> None:
    disk = Embedded(disk_with_three_writes()).disk
    for size in range(len(disk.view()[SNAPSHOT_PATH])):
        twin = disk.fork()
        twin.open(SNAPSHOT_PATH, "write").truncate(size)
        with pytest.raises(BadValue, match=SNAPSHOT_PATH):
            load(twin, FOLDER)


def test_a_snapshot_whose_journal_is_missing_is_refused() -> None:
    disk = disk_with_three_writes()
    disk.remove(JOURNAL_PATH)
    with pytest.raises(BadValue, match=r"journal-0000000100000001 is missing: restore"):
        load(disk, FOLDER)


def test_a_journal_with_content_whose_snapshot_is_missing_is_refused() -> None:
    disk = disk_with_three_writes()
    disk.remove(SNAPSHOT_PATH)
    with pytest.raises(BadValue, match="the snapshot it goes with is missing"):
        load(disk, FOLDER)


def test_a_snapshot_older_than_the_journal_is_refused() -> None:
    """As when somebody restores one file of the two."""
    disk = disk_with_three_writes()
    old = disk.view()
    place = Embedded(disk)
    place.write(Create(path="/new"))
    disk.process_dies()
    for path in (SNAPSHOT_PATH, JOURNAL_PATH):
        replace(disk, path, old[path])
    with pytest.raises(BadValue, match="the snapshot it goes with is missing"):
        load(disk, FOLDER)


def test_a_journal_under_the_wrong_name_is_refused() -> None:
    disk = disk_with_three_writes()
    data = disk.view()[JOURNAL_PATH]
    place = Embedded(disk)
    disk.process_dies()
    (name,) = [name for name in disk.list(FOLDER) if name.startswith("journal")]
    assert place.children("/") == ["n0", "n1", "n2"]
    replace(disk, f"{FOLDER}/{name}", data)
    with pytest.raises(BadValue, match="its name is not that of its content"):
        load(disk, FOLDER)


def test_an_empty_journal_that_a_crash_left_counts_for_nothing_but_its_epoch() -> None:
    disk = disk_with_three_writes()
    for content in (b"", b"\xffTZN", frame(Header(JOURNAL, (7 << 32) + 1).encode(), 0)):
        replace(disk, f"{FOLDER}/journal-{(7 << 32) + 1:016x}", content)
        assert load(disk, FOLDER).zxid_max == (7 << 32) + 1
    place = Embedded(disk)
    assert place.coordination.session_id == 8 << 32
    assert len(disk.list(FOLDER)) == 2, "and is removed"


def test_files_of_other_names_are_left_alone() -> None:
    disk = disk_with_three_writes()
    replace(disk, f"{FOLDER}/notes.txt", b"mine")
    replace(disk, f"{FOLDER}/journal-old", b"mine")
    place = Embedded(disk)
    assert place.children("/") == ["n0", "n1", "n2"]
    assert {"notes.txt", "journal-old"} <= set(disk.list(FOLDER))


def test_a_folder_that_is_not_there_holds_an_empty_tree() -> None:
    assert load(SimDisk(), "/no/such").tree.children("/") == []


# Content that has a good checksum and makes no sense.


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "does not begin as such a file must"),
        (Header(SNAPSHOT, 1).encode(), "is of kind b'snap', and must be of kind b'jrnl'"),
        (b"jrnl" + (2).to_bytes(4) + bytes(16), "has format 2; this version of tidelog reads 1"),
    ],
)
def test_a_header_that_is_not_ours_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(BadValue) as caught:
        read_header(content, JOURNAL, "file")
    assert str(caught.value) == f"file: {complaint}"


@pytest.mark.parametrize(
    ("changes", "zxid", "complaint"),
    [
        ([Create(path="/n1")], 1 << 33, "cannot be done again: /n1: there is such a node already"),
        ([Create(path="/x")], (1 << 32) + 2, "stands behind 0x100000003"),
    ],
)
def test_transactions_that_cannot_be_are_refused(
    changes: list[Create], zxid: int, complaint: str
) -> None:
    disk = disk_with_three_writes()
    file = disk.open(JOURNAL_PATH, "write")
    file.pwrite(frame(encode_transaction(When(zxid, 0), changes), file.size()), file.size())
    with pytest.raises(BadValue, match=complaint):
        load(disk, FOLDER)


WRITES = encode_transaction(
    When(5, 6, 7),
    [
        Create(path="/a/ä", data=bytes(range(256))),
        Create(path="/e", ephemeral=True),
        SetData(path="/a", data=b""),
        Delete(path="/a"),
    ],
)


def test_a_transaction_is_read_as_it_was_written() -> None:
    first, second = read_transactions(WRITES * 2, "file")
    assert first == second
    assert first.when == (5, 6, 7)
    assert first.changes == [
        Create(path="/a/ä", data=bytes(range(256))),
        Create(path="/e", ephemeral=True),
        SetData(path="/a", data=b""),
        Delete(path="/a"),
    ]


def test_a_transaction_cut_anywhere_is_refused() -> None:
    for size in range(1, len(WRITES)):
        with pytest.raises(BadValue, match="makes no sense"):
            list(read_transactions(WRITES[:size], "file"))


def test_a_node_is_read_as_it_was_written() -> None:
    node = Znode(b"data", When(1 << 40, 1_700_000_000_000), 9)
    node.version, node.creations, node.modified_zxid, node.modified_ms = 3, 4, 1 << 41, 5
    encoded = encode_node("/größe", node)
    ((path, found),) = read_nodes(encoded, "file")
    assert path == "/größe"
    assert (found.data, found.stat(), found.creations) == (node.data, node.stat(), 4)
    for size in range(1, len(encoded)):
        with pytest.raises(BadValue, match="makes no sense"):
            list(read_nodes(encoded[:size], "file"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_garbage_is_refused_in_words_and_never_otherwise(data: bytes) -> None:
    contents, end = read_frames(data, "file")
    assert (contents, end) == ([], 0), "no frame comes of chance"
    for read in (read_transactions, read_nodes):
        try:
            list(read(data, "file"))
        except BadValue as error:
            complaint = str(error)
        else:
            complaint = "file: none"
        assert complaint.startswith("file: ")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=6), st.data())
def test_frames_are_read_back_up_to_where_the_file_is_cut(
    contents: list[bytes], data: st.DataObject
) -> None:
    encoded = b""
    ends = [0]
    for content in contents:
        encoded += frame(content, len(encoded))
        ends.append(len(encoded))
    size = data.draw(st.integers(0, len(encoded)))
    whole = sum(end <= size for end in ends[1:])
    assert read_frames(encoded[:size], "file") == (contents[:whole], ends[whole])
