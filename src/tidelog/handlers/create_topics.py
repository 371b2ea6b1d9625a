"""CreateTopics, API 19: makes topics, or only says whether it could (T1, T3, T6).

Each topic is made whole or not at all, and told apart in the answer; from version 5 that has
its effective settings too, from 7 its id. A name that comes twice is refused.
"""

from collections import Counter
from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.config_view import describe_new_topic
from tidelog.cluster.image import NO_TOPIC_ID, TopicInfo
from tidelog.cluster.requests import USE_DEFAULT, NewTopic
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.describing import config_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.waiting import TIMED_OUT, Patience

Outcome = NewTopic | KafkaError


def handle(node: Node, request: Request) -> None:
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    plan = {topic.name: _plan(topic, counts[topic.name]) for topic in body.topics}
    wanted = [topic for topic in plan.values() if isinstance(topic, NewTopic)]
    too_late = partial(_answer, node, request, plan, [TIMED_OUT] * len(wanted))
    patience = Patience(node, body.timeout, too_late)

    def done(results: list[TopicInfo | KafkaError]) -> None:
        patience.end(partial(_answer, node, request, plan, results))

    node.metadata.create_topics(wanted, body.validate_only, done)


def _plan(topic: Any, count: int) -> Outcome:
    try:
        if count > 1:
            raise KafkaError(ErrorCode.invalid_request, "duplicate topic name")
        return NewTopic(
            name=topic.name,
            partition_count=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignment=_assignment(topic),
            configs={config.name: config.value for config in topic.configs},
        )
    except KafkaError as error:
        return error


def _assignment(topic: Any) -> dict[int, tuple[int, ...]] | None:
    if not topic.assignments:
        return None
    if (topic.num_partitions, topic.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
        raise KafkaError(
            ErrorCode.invalid_request,
            "with an assignment of replicas, the number of partitions and the replication "
            "factor must both be -1",
        )
    assignment = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment, "a partition has more than one assignment"
        )
    return assignment


def _answer(node: Node, request: Request, plan: dict[str, Outcome], results: list[Any]) -> None:
    def answering() -> Answering:
        outcomes = iter(results)
        topics = Rows(request, "topics")
        for name, planned in plan.items():
            outcome = planned if isinstance(planned, KafkaError) else next(outcomes)
            topics.put(_result(node, name, outcome))
            yield None
        return {"topics": topics}

    answer_in_slices(node, request, answering())


def _result(node: Node, name: str, outcome: TopicInfo | KafkaError) -> Values:
    if isinstance(outcome, KafkaError):
        return {**error_fields(outcome), "name": name, "topic_id": NO_TOPIC_ID, "configs": ()}
    return {
        **NO_ERROR,
        "name": name,
        "topic_id": outcome.topic_id,
        "num_partitions": len(outcome.partitions),
        "replication_factor": outcome.replication_factor,
        "configs": list(map(config_fields, describe_new_topic(node.settings, outcome))),
    }


API = Api(key=19, first=2, last=7, handle=handle)
