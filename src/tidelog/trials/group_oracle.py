"""What must hold of a group (V15): looked at in its journal, and in every answer about it.

The journal tells who was a member of which generation, and so who might commit. Every commit has
a text of its own, by which it is known again: in the journal, and to whoever asks for it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.base.errors import ErrorCode
from tidelog.groups.records import (
    GROUP_KIND,
    OFFSET_KINDS,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from tidelog.records.fields import version_of
from tidelog.trials.counts import Counts
from tidelog.trials.journals import Batches
from tidelog.trials.oracle import Oracle
from tidelog.trials.violation import Violation

NOTHING = ""
"""The text of no commit."""


class Sent(NamedTuple):
    """A commit, as its member sent it."""

    member_id: str
    generation: int
    partition: int


Known = Mapping[int, int]
"""By epoch of the coordinator that told it: how far in the journal an answered commit was."""


class GroupOracle:
    def __init__(self, journal: Oracle, batches: Batches, counts: Counts) -> None:
        self._journal = journal
        self._batches = batches
        self._counts = counts
        self._seen = 0
        self._generation = -1
        self._members: dict[str, frozenset[int]] = {}
        """Of the generation that is in the journal, with their partitions."""
        self._sent: dict[str, Sent] = {}
        self._places: dict[str, int] = {}
        """Where in the journal each commit is."""
        self._latest: dict[int, str] = {}
        self._answered: dict[int, dict[int, int]] = {}
        self._owners: dict[tuple[int, int], str] = {}

    # -- what members do

    def sent(self, sent: Sent) -> str:
        """The text of a new commit."""
        text = f"c{len(self._sent) + 1}"
        self._sent[text] = sent
        return text

    def commit_answered(self, text: str, answer: object, epoch: int) -> None:
        if answer != [ErrorCode.none]:
            return
        self.catch_up()
        place = self._places.get(text)
        if place is None:
            raise Violation("V15", f"{text} {self._sent[text]} is answered and not committed")
        self._counts.commits += 1
        answered = self._answered.setdefault(self._sent[text].partition, {})
        answered[epoch] = max(answered.get(epoch, -1), place)

    def known(self, partition: int) -> Known:
        """What someone who asks now must not be told less of."""
        return dict(self._answered.get(partition, {}))

    def fetch_answered(self, partition: int, known: Known, answer: object, epoch: int) -> None:
        """A coordinator cannot know of what later ones have answered, before it hears of them."""
        if not isinstance(answer, str):
            return
        self.catch_up()
        place = self._places.get(answer, -1)
        if answer != NOTHING and place < 0:
            raise Violation("V15", f"{answer} is told of and not committed")
        required = max((at for other, at in known.items() if other <= epoch), default=-1)
        if place < required:
            raise Violation(
                "V15", f"the offset of partition {partition} is told to be {answer}, from {place} "
                f"of the journal, when one from {required} was answered before"
            )  # fmt: skip

    def owns(self, member_id: str, generation: int, partitions: tuple[int, ...]) -> None:
        """A member was told what to read."""
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Violation(
                    "V15",
                    f"partition {partition} belongs to {owner} and {member_id} in generation "
                    f"{generation}",
                )

    # -- the journal

    def catch_up(self) -> None:
        committed = self._journal.committed
        for place in range(self._seen, len(committed)):
            for key, value in self._batches.get(committed[place][1]).entries:
                assert value is not None, "nothing is deleted here"
                kind = version_of(key)
                if kind in OFFSET_KINDS:
                    partition = read_offset_key(key).partition
                    self._kept(partition, read_offset_value(value).metadata, place)
                elif kind == GROUP_KIND:
                    self._group_is(value)
        self._seen = len(committed)

    def _group_is(self, value: bytes) -> None:
        group = read_group_value(value)
        if group.generation < self._generation:
            raise Violation("V15", f"generation {group.generation} follows {self._generation}")
        self._counts.generations += group.generation > self._generation
        self._generation = group.generation
        self._members = {member.member_id: frozenset(member.assignment) for member in group.members}

    def _kept(self, partition: int, text: str, place: int) -> None:
        sent = self._sent[text]
        if sent.generation != self._generation:
            raise Violation(
                "V15",
                f"{text} of generation {sent.generation} is kept in generation {self._generation}",
            )
        if partition not in self._members.get(sent.member_id, ()):
            raise Violation("V15", f"{text} is kept, {sent.member_id} does not own {partition}")
        self._places[text] = place
        self._latest[partition] = text

    def look_at_end(self, told: Mapping[int, str]) -> None:
        """What a coordinator knows at last, for each partition."""
        self.catch_up()
        for partition, text in told.items():
            if text != self._latest.get(partition, NOTHING):
                raise Violation(
                    "V15",
                    f"the offset of partition {partition} is {text} at last, the journal has "
                    f"{self._latest.get(partition)}",
                )
