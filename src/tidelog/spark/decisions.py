"""What a driver has decided about one batch: whose transactions are to be committed.

A decision is a transaction of its own: it commits, in a group that is the query's, an offset which
is the number of the batch, and notes with it the run and its tasks. A note holds 4 KB, so a
decision of many tasks is spread over the entries of several partitions. The partitions are those
of `__consumer_offsets`, a topic that is always there and never deleted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.base.errors import BadValue
from tidelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from tidelog.client.offsets import Committed
from tidelog.client.transacting import OpenTransaction

NOTE_CHARACTERS_MAX: Final = 3_500
NOTES_MAX: Final = 50
_BATCHES_APART: Final = 32


class Task(NamedTuple):
    """One task's transaction."""

    number: int
    attempt: int
    producer_id: int
    epoch: int


def name_of(query: str, run: str, number: int, attempt: int) -> str:
    """The transactional id of a task."""
    return f"{prefix_of(query, run)}{number}/{attempt}"


def run_in_batch(run: str, batch: int) -> str:
    """How a run of a stream goes by in one of its batches, so that its tasks have other names than
    those of the next batches: to begin under a name gives up what was written under it. Names are
    kept for days by brokers, and are used again after a while."""
    return f"{run}/{batch % _BATCHES_APART}"


def prefix_of(query: str, run: str | None = None) -> str:
    """What the transactional ids of all tasks of a query, or of a run of it, begin with."""
    return f"tl/{query}/" if run is None else f"tl/{query}/{run}/"


def group_of(query: str) -> str:
    """The group in which a query's decisions are, and the transactional id of its drivers."""
    return f"tl/{query}"


def group_of_ends(query: str) -> str:
    """The group in which it is noted which run of a query was given up last."""
    return f"tl/{query}/ends"


def end_of(run: str) -> dict[TopicPartition, tuple[int, str]]:
    """As it is committed."""
    return {TopicPartition(CONSUMER_OFFSETS, 0): (0, run)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    batch: int
    run: str
    tasks: tuple[Task, ...]

    def transactions(self, query: str) -> list[OpenTransaction]:
        return [
            OpenTransaction(
                transactional_id=name_of(query, self.run, task.number, task.attempt),
                producer_id=task.producer_id,
                epoch=task.epoch,
            )
            for task in self.tasks
        ]

    def offsets(self) -> dict[TopicPartition, tuple[int, str]]:
        """As it is committed."""
        notes = list(_notes(self.tasks))
        if len(notes) > NOTES_MAX:
            raise BadValue(f"{len(self.tasks)} tasks are too many for one batch; write with fewer")
        return {
            TopicPartition(CONSUMER_OFFSETS, number): (
                self.batch,
                f"{self.run} {number + 1}/{len(notes)} {note}",
            )
            for number, note in enumerate(notes)
        }


def decision_in(committed: Mapping[TopicPartition, Committed]) -> Decision | None:
    """The last one that was committed in a group."""
    if not committed:
        return None
    batch = max(one.offset for one in committed.values())
    last = [one.metadata for _, one in sorted(committed.items()) if one.offset == batch]
    parts = [note.split(" ") for note in last]
    run, _, _ = parts[0]
    expected = [f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)]
    if [part[:2] for part in parts] != [[run, number] for number in expected]:
        raise BadValue(f"what was decided about batch {batch} cannot be read: {last}")
    tasks = tuple(_task(text) for _, _, note in parts for text in note.split(",") if text)
    return Decision(batch=batch, run=run, tasks=tasks)


def _notes(tasks: Sequence[Task]) -> Iterator[str]:
    note = ""
    for task in tasks:
        text = ":".join(map(str, task))
        if len(note) + len(text) >= NOTE_CHARACTERS_MAX:
            yield note
            note = ""
        note += f",{text}" if note else text
    yield note


def _task(text: str) -> Task:
    return Task(*map(int, text.split(":")))
