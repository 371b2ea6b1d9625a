"""CreatePartitions, API 37: adds partitions to topics, or only says whether it could (T3).

The count is what the topic shall have in all; an assignment, if given, is of the added ones.
A topic that comes twice is refused.
"""

from collections import Counter
from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.requests import NewPartitions
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.waiting import TIMED_OUT, Patience

Outcome = NewPartitions | KafkaError
_REPEATED = KafkaError(ErrorCode.invalid_request, "duplicate topic name")


def handle(node: Node, request: Request) -> None:
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    plan: dict[str, Outcome] = {
        topic.name: _REPEATED if counts[topic.name] > 1 else _wanted(topic) for topic in body.topics
    }
    wanted = [growth for growth in plan.values() if isinstance(growth, NewPartitions)]
    too_late = partial(_answer, node, request, plan, [TIMED_OUT] * len(wanted))
    patience = Patience(node, body.timeout, too_late)

    def done(results: list[TopicInfo | KafkaError]) -> None:
        patience.end(partial(_answer, node, request, plan, results))

    node.metadata.create_partitions(wanted, body.validate_only, done)


def _wanted(topic: Any) -> NewPartitions:
    assignment = None
    if topic.assignments is not None:
        assignment = [tuple(item.broker_ids) for item in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignment)


def _answer(node: Node, request: Request, plan: dict[str, Outcome], results: list[Any]) -> None:
    def answering() -> Answering:
        outcomes = iter(results)
        shown = Rows(request, "results")
        for name, planned in plan.items():
            shown.put(_result(name, planned if isinstance(planned, KafkaError) else next(outcomes)))
            yield None
        return {"results": shown}

    answer_in_slices(node, request, answering())


def _result(name: str, outcome: TopicInfo | KafkaError) -> Values:
    shown = error_fields(outcome) if isinstance(outcome, KafkaError) else NO_ERROR
    return {**shown, "name": name}


API = Api(key=37, first=0, last=3, handle=handle)
