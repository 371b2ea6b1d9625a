"""Consumer groups as their coordinators show them, of both protocols, and their end.

The newer protocol has a request of its own, so a group is asked about with that first; one that
is not known under it is asked about in the classic one. What a classic member was given to read
is written by the group's own leader, in the format of Kafka's consumers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.coordinators import Question, Told, ask_coordinators, ask_every_broker
from tidelog.records.fields import FieldReader

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
DEAD: Final = "Dead"
EMPTY: Final = "Empty"
_CONSUMER_PROTOCOLS: Final = ("consumer", "")
"""What consumers call theirs, and what groups have that only commit offsets."""
_IS_CLASSIC: Final = (ErrorCode.group_id_not_found, ErrorCode.unsupported_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group_id: str
    group_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    """The newer protocol has it, and what the member shall have in the end."""
    target: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    group_id: str
    group_type: str
    state: str
    coordinator: int
    assignor: str
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


def list_groups(
    client: Client, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[ListedGroup]:
    """Of consumers, sorted by name; all of them, or those in one of the states, of one type."""
    values = {"states_filter": states, "types_filter": types}
    found = [
        ListedGroup(
            group_id=group.group_id,
            group_type=group.group_type.capitalize(),
            state=group.group_state,
            coordinator=broker,
        )
        for broker, answer in ask_every_broker(client, apis.LIST_GROUPS, values).items()
        for group in answer.groups
        if group.protocol_type in _CONSUMER_PROTOCOLS
    ]
    # While a coordinator moves, two brokers may both name its groups.
    return sorted({one.group_id: one for one in found}.values(), key=lambda one: one.group_id)


def describe_groups(client: Client, names: Iterable[str]) -> dict[str, Group | KafkaError]:
    """In the order of the names."""
    wanted = list(dict.fromkeys(names))
    newer = _ask(client, apis.DESCRIBE_CONSUMER_GROUPS, "group_ids", wanted)
    rest = [name for name in wanted if newer[name].code in _IS_CLASSIC]
    classic = _ask(client, apis.DESCRIBE_GROUPS, "groups", rest)
    return {
        name: _described(classic[name], _classic_group, name)
        if name in classic
        else _described(newer[name], _newer_group, name)
        for name in wanted
    }


def delete_groups(client: Client, names: Iterable[str]) -> dict[str, KafkaError | None]:
    """With the offsets they have committed."""
    question = Question(
        kind="group",
        api=apis.DELETE_GROUPS,
        values=lambda some: {"groups_names": some},
        rows=lambda answer: [(row.group_id, row.error_code, row) for row in answer.results],
    )
    told = ask_coordinators(client, question, names)
    return {name: _refusal(name, one.code) for name, one in told.items()}


def delete_offsets(
    client: Client, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """What came of it, by partition; raises if the group refused all."""
    topics: dict[str, list[int]] = {}
    for one in sorted(set(partitions)):
        topics.setdefault(one.topic, []).append(one.partition)
    asked = [
        {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
        for topic, indexes in topics.items()
    ]
    question = Question(
        kind="group",
        api=apis.OFFSET_DELETE,
        values=lambda _: {"group_id": group_id, "topics": asked},
        rows=lambda answer: [(group_id, answer.error_code, answer)],
    )
    told = ask_coordinators(client, question, [group_id])[group_id]
    error = _refusal(group_id, told.code)
    if error is not None:
        raise error
    return {
        TopicPartition(topic.name, one.partition_index): _refusal(group_id, one.error_code)
        for topic in told.row.topics
        for one in topic.partitions
    }


def _ask(client: Client, api: apis.Api, field: str, names: Sequence[str]) -> dict[str, Told]:
    question = Question(
        kind="group",
        api=api,
        values=lambda some: {field: some, "include_authorized_operations": False},
        rows=lambda answer: [(row.group_id, row.error_code, row) for row in answer.groups],
    )
    try:
        return ask_coordinators(client, question, names)
    except KafkaError as error:
        if error.code is not ErrorCode.unsupported_version:
            raise
        return dict.fromkeys(names, Told(coordinator=-1, code=error.code))


def _described(told: Told, read: Callable[[Told], Group], name: str) -> Group | KafkaError:
    # Older answers have no code for a group that is not there, but a state.
    is_missing = told.code is ErrorCode.none and told.row.group_state == DEAD
    error = _refusal(name, ErrorCode.group_id_not_found if is_missing else told.code)
    return error or read(told)


def _newer_group(told: Told) -> Group:
    row = told.row
    return Group(
        group_id=row.group_id,
        group_type=CONSUMER,
        state=row.group_state,
        coordinator=told.coordinator,
        assignor=row.assignor_name,
        members=tuple(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_newer_assignment(member.assignment),
                epoch=member.member_epoch,
                target=_newer_assignment(member.target_assignment),
            )
            for member in row.members
        ),
        epoch=row.group_epoch,
        target_epoch=row.assignment_epoch,
    )


def _newer_assignment(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_group(told: Told) -> Group:
    """Groups of others, such as Kafka Connect's workers, share out what only they know."""
    row = told.row
    is_of_consumers = row.protocol_type in _CONSUMER_PROTOCOLS
    return Group(
        group_id=row.group_id,
        group_type=CLASSIC,
        state=row.group_state,
        coordinator=told.coordinator,
        assignor=row.protocol_data,
        members=tuple(
            Member(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=read_assignment(member.member_assignment) if is_of_consumers else (),
            )
            for member in row.members
        ),
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Of a classic member: version, topics with their partitions, and what else its leader added.
    While a group rebalances there is none."""
    if not data:
        return ()
    fields = FieldReader(data)
    found = []
    for _ in range(fields.count()):
        topic = fields.text()
        found += [TopicPartition(topic, fields.int32()) for _ in range(fields.count())]
    return tuple(sorted(found))


_SENTENCES: Final = {
    ErrorCode.group_id_not_found: "there is no group {}",
    ErrorCode.non_empty_group: "group {} has members: they must leave first",
    ErrorCode.group_subscribed_to_topic: "members of group {} are subscribed to it",
}


def _refusal(name: str, code: ErrorCode) -> KafkaError | None:
    if code is ErrorCode.none:
        return None
    sentence = _SENTENCES.get(code, f"group {{}}: {code.name.replace('_', ' ')}")
    return KafkaError(code, sentence.format(name))
