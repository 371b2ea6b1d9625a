"""What the handlers of groups share: finding who looks after a group, and waiting for what is told
of it to be committed."""

from collections.abc import Callable, Generator, Iterable
from functools import partial

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Node
from tidelog.slices import Ask


def find_group(node: Node, group_id: str) -> GroupShard:
    """The shard that looks after a group whose members have a name for it."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "a group needs a name")
    return node.coordinators.groups.find(group_id)


def settled(shard: GroupShard) -> Generator[Ask, None, KafkaError | None]:
    """Waits until all that a shard knows is committed, as part of work in slices."""
    outcomes: list[KafkaError | None] = []
    yield partial(_settle, shard, outcomes)
    return outcomes[0]


def all_settled(shards: Iterable[GroupShard]) -> Generator[Ask, None, KafkaError | None]:
    """The same for several: the first error there is."""
    found: KafkaError | None = None
    for shard in shards:
        error = yield from settled(shard)
        found = found or error
    return found


def _settle(shard: GroupShard, outcomes: list[KafkaError | None], then: Callable[[], None]) -> None:
    def committed(error: KafkaError | None) -> None:
        outcomes.append(error)
        then()

    shard.settle(committed)
