"""Writing what a controller decided for partitions, under the fence of its office.

States go in writes of up to a hundred; when one of them fails, those in it are tried singly, so
that a leader that was quicker with one partition holds up no other. A change of replicas stands
in the topic's node and in the state: both go in one write. What became of a write whose answer
was lost is not known: whoever asked must look.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Create,
    Operation,
    SetData,
    Trouble,
    Written,
)
from tidelog.cluster import paths
from tidelog.cluster.image import NO_STATE, PartitionInfo, TopicInfo
from tidelog.cluster.mending import without_existing
from tidelog.cluster.realm import PartitionName, is_end, is_lost_race
from tidelog.cluster.topic_nodes import Group, changed_state, state_data, topic_data, written
from tidelog.cluster.writing import OPERATIONS_MAX, Ask, gather, pack, write_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One partition, as it is and as it shall be."""

    name: PartitionName
    before: PartitionInfo
    after: PartitionInfo

    @property
    def moves_replicas(self) -> bool:
        before, after = self.before, self.after
        return (before.replicas, before.adding_replicas, before.removing_replicas) != (
            after.replicas,
            after.adding_replicas,
            after.removing_replicas,
        )

    @property
    def makes_state(self) -> bool:
        return self.before.state_version == NO_STATE and self.after.leader_epoch != NO_STATE

    @property
    def outcome(self) -> PartitionInfo:
        """What is known of the partition when it was written."""
        if self.before.state_version != NO_STATE:
            return written(self.after)
        return replace(self.after, state_version=0) if self.makes_state else self.after


@dataclass(slots=True)
class Outcome:
    done: list[Planned] = field(default_factory=list)
    unsure: list[Planned] = field(default_factory=list)
    """To be read again."""
    failed: list[Planned] = field(default_factory=list)
    """The coordinator could not do it; later it may."""
    end: CoordinationError | None = None
    """There is another controller, or the session is over."""
    topic_versions: dict[str, int] = field(default_factory=dict)
    """Of topics whose own node was written."""

    def note(self, changes: Sequence[Planned], error: CoordinationError | None) -> None:
        if error is None:
            self.done += changes
        elif is_end(error):
            self.end = error
        elif error.trouble in (Trouble.storage, Trouble.bad_arguments):
            self.failed += changes
        else:
            self.unsure += changes


Done = Callable[[Outcome], None]


class StateWriter:
    def __init__(
        self,
        coordination: Coordination,
        fence: Check,
        is_current: Callable[[Planned], bool],
    ) -> None:
        """`is_current`: whether a partition is still what its change was planned from. A topic
        that was deleted and made again since has nodes of the same names and versions."""
        self._coordination = coordination
        self._fence = fence
        self._is_current = is_current

    def write(self, changes: Sequence[Planned], topics: dict[str, TopicInfo], done: Done) -> None:
        """`topics` are those of the image. No more than fit into one write may move replicas of
        one topic."""
        outcome = Outcome()
        moving = [change for change in changes if change.moves_replicas]
        staying = [change for change in changes if not change.moves_replicas]
        new = [change for change in staying if change.makes_state]
        asks: list[Ask[None]] = [
            *self._state_writes([c for c in staying if not c.makes_state], outcome),
            *self._moves(moving, topics, outcome),
        ]
        if new:
            asks.append(partial(self._make_states, new, outcome))
        gather(asks, lambda _: done(outcome))

    def _state_writes(self, changes: list[Planned], outcome: Outcome) -> list[Ask[None]]:
        size = OPERATIONS_MAX - 1
        parts = [changes[at : at + size] for at in range(0, len(changes), size)]
        return [partial(self._write_part, part, outcome) for part in parts]

    def _write_part(
        self, part: list[Planned], outcome: Outcome, done: Callable[[None], None]
    ) -> None:
        def wrote(result: list[Written] | CoordinationError) -> None:
            error = result if isinstance(result, CoordinationError) else None
            if error is not None and is_lost_race(error) and len(part) > 1:
                current = [change for change in part if self._is_current(change)]
                outcome.unsure += [change for change in part if change not in current]
                asks: list[Ask[None]] = [
                    partial(self._write_part, [change], outcome) for change in current
                ]
                gather(asks, lambda _: done(None))
            else:
                outcome.note(part, error)
                done(None)

        operations: list[Operation] = [self._fence]
        for change in part:
            operations += changed_state(*change.name, change.after)
        self._coordination.write(operations, wrote)

    def _moves(
        self, changes: list[Planned], topics: dict[str, TopicInfo], outcome: Outcome
    ) -> list[Ask[None]]:
        by_topic: dict[str, list[Planned]] = {}
        for change in changes:
            by_topic.setdefault(change.name[0], []).append(change)
        return [
            partial(self._move, topics[name], found, outcome) for name, found in by_topic.items()
        ]

    def _move(
        self,
        topic: TopicInfo,
        changes: list[Planned],
        outcome: Outcome,
        done: Callable[[None], None],
    ) -> None:
        moved = {change.name[1]: change.after for change in changes}
        partitions = [moved.get(index, old) for index, old in enumerate(topic.partitions)]
        data = topic_data(replace(topic, partitions=tuple(partitions)))
        operations: list[Operation] = [
            self._fence,
            SetData(path=paths.topic(topic.name), data=data, version=topic.version),
        ]
        for change in changes:
            if change.before.state_version != NO_STATE:
                operations += changed_state(*change.name, change.after)

        def wrote(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError):
                outcome.note(changes, result)
            else:
                outcome.note(changes, None)
                outcome.topic_versions[topic.name] = topic.version + 1
            done(None)

        self._coordination.write(operations, wrote)

    def _make_states(
        self, changes: list[Planned], outcome: Outcome, done: Callable[[None], None]
    ) -> None:
        """The parents of a state may or may not be there."""
        topics = dict.fromkeys(change.name[0] for change in changes)
        groups: list[Group] = [[Create(path=paths.partitions(name))] for name in topics]
        groups += [_new_state(change) for change in changes]

        def looked(missing: list[Group] | CoordinationError) -> None:
            if isinstance(missing, CoordinationError):
                outcome.note(changes, missing)
                done(None)
                return
            made = {node.path for group in missing for node in group}
            new = [c for c in changes if paths.state(*c.name) in made and self._is_current(c)]
            outcome.unsure += [change for change in changes if change not in new]
            if len(new) == len(changes):
                self._make_parts(missing, new, outcome, done)
            else:
                # Those are looked at first; the others come again with them.
                outcome.unsure += new
                done(None)

        without_existing(self._coordination, groups, looked)

    def _make_parts(
        self,
        missing: list[Group],
        changes: list[Planned],
        outcome: Outcome,
        done: Callable[[None], None],
    ) -> None:
        def wrote(error: CoordinationError | None) -> None:
            outcome.note(changes, error)
            done(None)

        write_parts(self._coordination, pack(missing, self._fence), wrote)


def _new_state(change: Planned) -> Group:
    topic, index = change.name
    return [
        Create(path=paths.partition(topic, index)),
        Create(path=paths.state(topic, index), data=state_data(change.after)),
    ]
