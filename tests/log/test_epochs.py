"""The vector of leader epochs and their starts, against a list of what each offset was written
in (L1, L2, X11)."""

from hypothesis import given
from hypothesis import strategies as st

from support.logs import NOW, Simulated, batch, check_everything
from tidelog.base.log_settings import LogSettings
from tidelog.log.epochs import NO_OFFSET, LeaderEpochs
from tidelog.log.truncation import truncate_suffix

UNKNOWN = (-1, NO_OFFSET)


def test_each_epoch_begins_where_its_first_record_was_written() -> None:
    """L1."""
    epochs = LeaderEpochs()
    for epoch, start in ((1, 0), (1, 5), (2, 6), (5, 9)):
        epochs.assign(epoch, start)
    assert epochs.entries == [(1, 0), (2, 6), (5, 9)]
    assert epochs.latest == 5
    assert [epochs.at(offset) for offset in (0, 5, 6, 8, 9, 100)] == [1, 1, 2, 2, 5, 5]


def test_end_of_an_epoch_is_the_start_of_the_next_or_the_log_end() -> None:
    """L2."""
    epochs = LeaderEpochs([(1, 0), (2, 6), (5, 9)])
    assert epochs.end_of(1, 12) == (1, 6)
    assert epochs.end_of(2, 12) == (2, 9)
    assert epochs.end_of(3, 12) == (2, 9), "the largest known epoch that is not above"
    assert epochs.end_of(5, 12) == (5, 12)
    assert epochs.end_of(9, 12) == (5, 12)
    assert epochs.end_of(-1, 12) == UNKNOWN
    assert LeaderEpochs().end_of(3, 12) == UNKNOWN


def test_epoch_before_the_first_known_one_ended_where_that_one_began() -> None:
    assert LeaderEpochs([(4, 20)]).end_of(2, 30) == (2, 20)


def test_epoch_without_a_record_gives_way_to_an_older_one_with_records() -> None:
    """X11: C led epoch 7 and wrote nothing; then it takes records of epoch 6 at the same
    offset. The end of epoch 6 must not be answered with 0."""
    epochs = LeaderEpochs()
    epochs.assign(7, 0)
    epochs.assign(6, 0)
    assert epochs.entries == [(6, 0)]
    epochs.assign(9, 2)
    assert epochs.end_of(6, 2) == (6, 2)


def test_follower_that_had_led_in_vain_answers_with_the_records_it_took() -> None:
    """X11, in a log."""
    leader = Simulated(LogSettings()).log
    leader.append_as_leader(batch(2), 6, NOW)
    piece = leader.read(0, 1000, 2)
    follower = Simulated(LogSettings()).log
    follower.epochs.assign(7, 0)
    follower.append_as_follower(piece.file.pread(piece.size, piece.position), 8)
    follower.append_as_leader(batch(), 9, NOW)
    assert follower.epochs.entries == [(6, 0), (9, 2)]
    assert follower.epochs.end_of(6, follower.log_end_offset) == (6, 2)
    check_everything(follower)


def test_epoch_that_never_got_a_record_is_gone_after_a_truncation_to_the_log_end() -> None:
    """L1, D7."""
    world = Simulated(LogSettings())
    world.log.append_as_leader(batch(3), 4, NOW)
    world.log.epochs.assign(5, 3)
    truncate_suffix(world.log, 3, NOW)
    assert world.log.epochs.entries == [(4, 0)]
    assert world.kill().epochs.entries == [(4, 0)]


def test_truncation_and_a_new_log_start_cut_the_vector_at_both_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 6), (5, 9)])
    epochs.advance_log_start(7)
    assert epochs.entries == [(2, 7), (5, 9)]
    epochs.advance_log_start(7)
    assert epochs.entries == [(2, 7), (5, 9)]
    epochs.truncate_suffix(9)
    assert epochs.entries == [(2, 7)]
    assert epochs.latest == 2
    epochs.truncate_suffix(0)
    assert epochs.entries == []
    assert epochs.latest == -1


def test_only_a_change_asks_to_be_written() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 6)])
    assert not epochs.changed
    epochs.assign(2, 8)
    epochs.truncate_suffix(7)
    epochs.advance_log_start(0)
    assert not epochs.changed
    epochs.assign(3, 8)
    assert epochs.changed


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["append", "append", "append", "new epoch", "truncate", "start"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 12)), max_size=40))


class Naive:
    """The epoch of each offset, from the log start on."""

    def __init__(self) -> None:
        self.start = 0
        self.written: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.written)

    def end_of(self, epoch: int) -> tuple[int, int]:
        if not self.written or epoch == -1:
            return UNKNOWN
        known = [e for e in self.written if e <= epoch]
        if not known:
            return epoch, self.start
        last = max(index for index, e in enumerate(self.written) if e <= epoch)
        return max(known), self.start + last + 1


@given(histories())
def test_vector_answers_as_a_list_of_every_offset_would(history: list[tuple[str, int]]) -> None:
    """L1, L2."""
    epochs, naive, epoch = LeaderEpochs(), Naive(), 0
    for kind, number in history:
        if kind == "append":
            epochs.assign(epoch, naive.end)
            naive.written += [epoch] * (1 + number % 3)
        elif kind == "new epoch":
            epoch += 1 + number % 3
        elif kind == "truncate":
            to = naive.start + number % (len(naive.written) + 1)
            epochs.truncate_suffix(to)
            del naive.written[to - naive.start :]
            epoch += 1
        else:
            to = naive.start + number % (len(naive.written) + 1)
            epochs.advance_log_start(to)
            del naive.written[: to - naive.start]
            naive.start = to
            if not naive.written:
                epochs.truncate_suffix(naive.end)
    for offset in range(naive.start, naive.end):
        assert epochs.at(offset) == naive.written[offset - naive.start]
    for asked in range(-1, epoch + 3):
        assert epochs.end_of(asked, naive.end) == naive.end_of(asked)
    assert LeaderEpochs(epochs.entries).entries == epochs.entries


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=30))
def test_entries_always_grow_whatever_is_assigned(assigned: list[tuple[int, int]]) -> None:
    """V6: and the last word is always heard."""
    epochs = LeaderEpochs()
    for epoch, start in assigned:
        epochs.assign(epoch, start)
        entries = epochs.entries
        assert entries == sorted(entries)
        assert len({e for e, _ in entries}) == len({s for _, s in entries}) == len(entries)
        assert entries[-1][0] == epoch == epochs.latest
        assert epochs.at(start) == epoch
