"""What the handlers of groups share: finding who looks after a group, waiting for what is told
of it to be committed, and describing many of them."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed
from tidelog.groups.errors import told
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Node, Request
from tidelog.handlers.building import NO_ERROR, Values
from tidelog.handlers.describing import GROUP_OPERATIONS
from tidelog.handlers.rows import Answering, Rows
from tidelog.slices import Ask


def find_group(node: Node, group_id: str) -> GroupShard:
    """The shard that looks after a group whose members have a name for it."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "a group needs a name")
    return node.coordinators.groups.find(group_id)


def settled(shard: GroupShard) -> Generator[Ask, None, KafkaError | None]:
    """Waits until all that a shard knows is committed, as part of work in slices."""
    return (yield from waited_for(shard.settle))


def waited_for(ask: Callable[[Committed], None]) -> Generator[Ask, None, KafkaError | None]:
    """Waits until what is asked of a shard is committed, as part of work in slices."""
    outcomes: list[KafkaError | None] = []

    def wait(then: Callable[[], None]) -> None:
        def committed(error: KafkaError | None) -> None:
            outcomes.append(error)
            then()

        ask(committed)

    yield wait
    return outcomes[0]


def all_settled(shards: Iterable[GroupShard]) -> Generator[Ask, None, KafkaError | None]:
    """The same for several: the first error there is."""
    found: KafkaError | None = None
    for shard in shards:
        error = yield from settled(shard)
        found = found or error
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """How an API tells of a group."""

    of: Callable[[GroupShard, str], tuple[Values, Iterable[Values]]]
    """The group and its members; raises if there is none by that name."""
    missing: Callable[[KafkaError], Values]


def describe_groups(
    node: Node, request: Request, group_ids: Sequence[str], description: Description
) -> Answering:
    """The row of each group; what could not be committed in time is told of none of them."""
    groups = Rows(request, "groups")
    shards: dict[int, GroupShard] = {}
    for group_id in group_ids:
        try:
            shard = node.coordinators.groups.find(group_id)
            shards[id(shard)] = shard
            shown, rows = description.of(shard, group_id)
        except KafkaError as error:
            row = {**description.missing(error), "group_id": group_id}
            groups.put(_with_operations(request, row))
        else:
            members = Rows(request, "groups", "members")
            for member in rows:
                members.put(member)
                yield None
            row = {**NO_ERROR, **shown, "group_id": group_id, "members": members}
            groups.put(_with_operations(request, row))
        yield None
    failure = yield from all_settled(shards.values())
    if failure is None:
        return {"groups": groups}
    missing = description.missing(KafkaError(told(failure), failure.message))
    return {"groups": [{**missing, "group_id": group_id} for group_id in group_ids]}


def _with_operations(request: Request, row: Values) -> Values:
    """Who asks what he may do with a group is told, unless there is an error."""
    is_asked = getattr(request.body, "include_authorized_operations", False)
    if not is_asked or row["error_code"] is not ErrorCode.none:
        return row
    return {**row, "authorized_operations": GROUP_OPERATIONS}
