"""Members of a group: they join, share the partitions, commit where they are, and fail.

A member that pauses comes back with the generation it had, as if nothing had happened; one that
crashes comes back as another; some commits are sent late, when their member has gone on.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.groups.records import OffsetKey, OffsetValue
from tidelog.groups.requests import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Commit,
    Identity,
    Join,
    Joined,
    Leaving,
    Sync,
    Synced,
)
from tidelog.groups.shard import GroupShard
from tidelog.trials.clients import RETRY_MS
from tidelog.trials.coordinated import Coordinated
from tidelog.trials.group_oracle import NOTHING, GroupOracle, Sent
from tidelog.trials.leading import TOPIC
from tidelog.trials.network import Reply

if TYPE_CHECKING:
    from tidelog.trials.world import World

GROUP: Final = "g"
SESSION_MS: Final = 400
COMMIT_VERSION: Final = 8
_NO_TOPIC_ID: Final = bytes(16)


class Member(Coordinated):
    def __init__(self, world: "World", index: int, oracle: GroupOracle) -> None:
        super().__init__(world, index)
        self._random = world.member_draws.random
        self._oracle = oracle
        self._forget()

    def _forget(self) -> None:
        self._member_id = NO_MEMBER_ID
        self._generation = NO_GENERATION
        self._owned: tuple[int, ...] = ()
        self._offset = 0

    # -- becoming a member

    def start(self) -> None:
        join = Join(
            group_id=GROUP,
            member_id=self._member_id,
            client_id="m",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=(("range", b""),),
        )
        self.to_coordinator(lambda shard, reply: shard.join(join, reply), self._joined)

    def _joined(self, answer: Joined | ErrorCode | None) -> None:
        if not isinstance(answer, Joined):
            self.later(RETRY_MS, self.start)
        elif answer.code is ErrorCode.none:
            self._member_id, self._generation = answer.member_id, answer.generation
            self._owned = ()
            self._sync(answer)
        elif answer.code is ErrorCode.member_id_required:
            self._member_id = answer.member_id
            self.start()
        else:
            if answer.code is ErrorCode.unknown_member_id:
                self._forget()
            self.later(RETRY_MS, self.start)

    def _sync(self, joined: Joined) -> None:
        members = [member.member_id for member in joined.members]
        partitions = range(self.world.options.partitions)
        shares = {
            member_id: bytes(partitions[number :: len(members)])
            for number, member_id in enumerate(members)
        }
        sync = Sync(who=self._identity(), assignments=shares)
        self.to_coordinator(lambda shard, reply: shard.sync(sync, reply), self._synced)

    def _synced(self, answer: Synced | ErrorCode | None) -> None:
        if not isinstance(answer, Synced) or answer.code is not ErrorCode.none:
            self._failed(answer.code if isinstance(answer, Synced) else answer)
            return
        self._owned = tuple(answer.assignment)
        self.world.counts.rebalances += 1
        self._oracle.owns(self._member_id, self._generation, self._owned)
        self._go_on()

    def _identity(self) -> Identity:
        return Identity(GROUP, self._member_id, None, self._generation)

    # -- being one

    def _go_on(self) -> None:
        self.later(self.think_ms(), self._act)

    def _act(self) -> None:
        self.world.counts.operations += 1
        drawn = self._random()
        if drawn < 0.05:
            self.later(int(2 * SESSION_MS * self._random()), self._commit)
        elif drawn < 0.15 and self._owned:
            self.later(int(SESSION_MS * self._random()), self._prepared_commit(_nobody_hears))
            self._go_on()
        elif drawn < 0.18:
            self._forget()
            self.later(self.think_ms(), self.start)
        elif drawn < 0.21:
            self._leave()
        elif drawn < 0.35 or not self._owned:
            identity = self._identity()
            self.to_coordinator(lambda shard, reply: shard.heartbeat(identity, reply), self._heard)
        elif drawn < 0.5:
            self._fetch()
        else:
            self._commit()

    def _heard(self, answer: ErrorCode | None) -> None:
        if answer is ErrorCode.none:
            self._go_on()
        else:
            self._failed(answer)

    def _commit(self) -> None:
        if self._owned:
            self._prepared_commit(self._committed)()
        else:
            self._go_on()

    def _prepared_commit(self, done: Any) -> Callable[[], None]:
        """As a member of the present generation, whenever it is sent."""
        partition = self._owned[int(self._random() * len(self._owned))]
        self._offset += 1
        text = self._oracle.sent(Sent(self._member_id, self._generation, partition))
        commit = Commit(TOPIC, _NO_TOPIC_ID, partition, self._offset, -1, text)
        call = partial(_commit, self._identity(), commit)
        return partial(self.to_coordinator, call, done, partial(self._oracle.commit_answered, text))

    def _committed(self, answer: list[ErrorCode] | ErrorCode | None) -> None:
        self._heard(answer[0] if isinstance(answer, list) else answer)

    def _fetch(self) -> None:
        partition = self._owned[int(self._random() * len(self._owned))]
        look = partial(self._oracle.fetch_answered, partition, self._oracle.known(partition))
        self.to_coordinator(partial(_fetch, partition), lambda _answer: self._go_on(), look)

    def _leave(self) -> None:
        leaving = [Leaving(self._member_id)]
        self._forget()
        self.to_coordinator(
            lambda shard, reply: shard.leave(GROUP, leaving, reply), lambda _answer: None
        )
        self.later(self.think_ms(), self.start)

    def _failed(self, code: ErrorCode | None) -> None:
        """Whoever is not heard of, or not known, joins again."""
        if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self._forget()
            self.later(1, self.start)
        elif code in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation):
            self.later(1, self.start)
        elif self._owned:
            self.later(RETRY_MS, self._act)
        else:
            self.later(RETRY_MS, self.start)


def _commit(identity: Identity, commit: Commit, shard: GroupShard, reply: Reply) -> None:
    shard.committing.commit(identity, [commit], reply, version=COMMIT_VERSION)


def _fetch(partition: int, shard: GroupShard, reply: Reply) -> None:
    found = text_of(shard, partition)
    shard.settle(lambda error: reply(found if error is None else error.code))


def text_of(shard: GroupShard, partition: int) -> str:
    """Of the last commit that a coordinator knows of."""
    key = OffsetKey(GROUP, TOPIC, partition)
    found = shard.committing.look_up(key, _NO_TOPIC_ID, is_stable=False)
    return found.metadata if isinstance(found, OffsetValue) else NOTHING


def _nobody_hears(_answer: Any) -> None:
    """A member may have gone on before an answer comes."""
