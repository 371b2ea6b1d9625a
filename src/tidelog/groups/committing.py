"""Committing offsets, and looking them up: who may, what is kept, and what is found.

An offset says which topic it is for by name and by id, so that those of a topic that was deleted
and made again are not taken for the new one's.
"""

from collections.abc import Sequence

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry, Origin
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.classic_groups import ClassicGroups
from tidelog.groups.errors import no_such_group, told
from tidelog.groups.group import CheckOne, Group
from tidelog.groups.journaled import Journaled
from tidelog.groups.offsets import Offsets, tombstone
from tidelog.groups.records import (
    NO_TIME,
    NO_TOPIC_ID,
    OffsetKey,
    OffsetValue,
    write_offset_key,
    write_offset_value,
)
from tidelog.groups.requests import AnswerCodes, Commit, Identity, Manner
from tidelog.groups.surroundings import GroupSurroundings

_NOT_FOUND_IS_KNOWN_FROM = 9
"""The version of OffsetCommit whose clients know that there may be no such group."""

Row = tuple[OffsetKey, OffsetValue]


class Committing:
    def __init__(
        self,
        surroundings: GroupSurroundings,
        groups: dict[str, Group],
        offsets: Offsets,
        classic: ClassicGroups,
        journaled: Journaled,
    ) -> None:
        self._surroundings = surroundings
        self._groups = groups
        self._offsets = offsets
        self._classic = classic
        self._journaled = journaled
        self.topic_ids: dict[str, bytes] = {}
        """Of the topics that offsets are for, by name, as they were seen last."""

    def commit(
        self,
        who: Identity,
        commits: Sequence[Commit],
        answer: AnswerCodes,
        *,
        version: int,
        retention_ms: int = NO_TIME,
    ) -> None:
        """Keeps offsets. Raises if none of them may be committed; answers for each of them."""
        group = self._groups.get(who.group_id)
        check_one: CheckOne | None = None
        if group is not None:
            check_one = group.check_commit(who, Manner(False, version))
            if isinstance(group, ClassicGroup):
                self._classic.heard_of(group, who.member_id)
        elif who.generation >= 0:
            raise _no_group(who, version)
        self._keep(who.group_id, commits, (check_one, None, retention_ms), answer)

    def commit_in_transaction(
        self,
        who: Identity,
        commits: Sequence[Commit],
        answer: AnswerCodes,
        producer: tuple[int, int],
    ) -> None:
        """Keeps offsets that count once the producer's transaction, named by its id and epoch, is
        committed."""
        group = self._groups.get(who.group_id)
        check_one: CheckOne | None = None
        if group is not None:
            check_one = group.check_commit(who, Manner(True, 0))
        elif who.generation >= 0:
            raise _no_group(who, 0)
        self._keep(who.group_id, commits, (check_one, producer, NO_TIME), answer)

    def _keep(
        self,
        group_id: str,
        commits: Sequence[Commit],
        how: tuple[CheckOne | None, tuple[int, int] | None, int],
        answer: AnswerCodes,
    ) -> None:
        check_one, producer, retention_ms = how
        now_ms = self._surroundings.clock.now_ms()
        expires_ms = NO_TIME if retention_ms == NO_TIME else now_ms + retention_ms
        text_max = self._surroundings.settings().whole("offset.metadata.max.bytes")
        codes = [_refusal(commit, text_max, check_one) for commit in commits]
        rows = [
            _row(group_id, commit, now_ms, expires_ms)
            for commit, code in zip(commits, codes, strict=True)
            if code is ErrorCode.none
        ]

        def replayed(origin: Origin) -> None:
            _, *same = origin
            for offset, (key, value) in enumerate(rows, origin.offset):
                self.topic_ids[key.topic] = value.topic_id
                self.replay(key, value, Origin(offset, *same))

        def committed(error: KafkaError | None) -> None:
            code = told(error)
            answer([code if refused is ErrorCode.none else refused for refused in codes])

        if rows:
            entries = [Entry(write_offset_key(key), write_offset_value(val)) for key, val in rows]
            self._journaled.apply(entries, replayed, committed, producer)
        else:
            answer(codes)

    def replay(self, key: OffsetKey, value: OffsetValue | None, origin: Origin) -> None:
        """Whoever commits without ever having joined makes a group that has offsets only."""
        if value is not None and key.group_id not in self._groups:
            self._groups[key.group_id] = self._classic.new(key.group_id)
        self._offsets.replay(key, value, origin)

    # -- looking them up

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)

    def look_up(
        self, key: OffsetKey, topic_id: bytes, *, is_stable: bool
    ) -> OffsetValue | ErrorCode | None:
        """What was committed last; or that an open transaction may be about to change it, if that
        is not wanted."""
        if is_stable and self._offsets.is_pending(key):
            return ErrorCode.unstable_offset_commit
        found = self._offsets.find(key)
        if found is not None and is_other_topic(found.topic_id, topic_id):
            return None
        return found

    # -- deleting them

    def delete_offsets(self, group_id: str, keys: Sequence[OffsetKey], answer: AnswerCodes) -> None:
        """Raises if none of them may be deleted; answers for each of them."""
        group = self._groups.get(group_id)
        if group is None:
            raise no_such_group(group_id)
        group.check_offset_delete()
        is_read = {key.topic: group.is_subscribed_to(key.topic) for key in keys}
        gone = [
            key
            for key in keys
            if not is_read[key.topic]
            and (self._offsets.find(key) is not None or self._offsets.is_pending(key))
        ]

        def committed(error: KafkaError | None) -> None:
            code = told(error)
            kept = ErrorCode.group_subscribed_to_topic
            answer([kept if is_read[key.topic] else code for key in keys])

        self._journaled.write_in_parts([tombstone(key) for key in gone], committed)


def is_other_topic(one: bytes, other: bytes) -> bool:
    """Whether two ids are known and not the same."""
    return NO_TOPIC_ID not in (one, other) and one != other


def _refusal(commit: Commit, text_max: int, check_one: CheckOne | None) -> ErrorCode:
    if len(commit.metadata) > text_max:
        return ErrorCode.offset_metadata_too_large
    if check_one is not None:
        try:
            check_one(commit)
        except KafkaError as error:
            return error.code
    return ErrorCode.none


def _row(group_id: str, commit: Commit, now_ms: int, expires_ms: int) -> Row:
    value = OffsetValue(
        commit.offset, commit.leader_epoch, commit.metadata, now_ms, expires_ms, commit.topic_id
    )
    return OffsetKey(group_id, commit.topic, commit.partition), value


def _no_group(who: Identity, version: int) -> KafkaError:
    if version >= _NOT_FOUND_IS_KNOWN_FROM:
        return no_such_group(who.group_id)
    return KafkaError(ErrorCode.illegal_generation, f"there is no group {who.group_id!r}")
