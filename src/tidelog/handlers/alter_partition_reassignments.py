"""AlterPartitionReassignments, API 45: moves the replicas of partitions, or takes a move back (T3).

A partition without replicas in the request goes back to where it was. The answer says that a move
has begun, not that it is done: ListPartitionReassignments shows those that are under way.
"""

from collections import Counter, defaultdict
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import Image
from tidelog.cluster.requests import Reassignment
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.waiting import TIMED_OUT, Patience

Outcome = Reassignment | KafkaError
Plan = list[tuple[str, int, Outcome]]
"""Topic and partition in the order of the request, and what is to be done."""

_REPEATED: Final = KafkaError(ErrorCode.invalid_request, "the partition stands more than once here")


def handle(node: Node, request: Request) -> None:
    plan = _plan(node.metadata.image, request.body)
    wanted = [outcome for _, _, outcome in plan if isinstance(outcome, Reassignment)]
    too_late = partial(_answer, node, request, plan, [TIMED_OUT] * len(wanted))
    patience = Patience(node, request.body.timeout, too_late)

    def done(results: list[KafkaError | None]) -> None:
        patience.end(partial(_answer, node, request, plan, results))

    node.metadata.alter_reassignments(wanted, done)


def _plan(image: Image, body: Any) -> Plan:
    asked = [
        Reassignment(
            topic=topic.name,
            partition=one.partition_index,
            replicas=None if one.replicas is None else tuple(one.replicas),
        )
        for topic in body.topics
        for one in topic.partitions
    ]
    counts = Counter((one.topic, one.partition) for one in asked)
    keeps_factor = not getattr(body, "allow_replication_factor_change", True)
    plan: Plan = []
    for one in asked:
        outcome: Outcome = one
        if counts[one.topic, one.partition] > 1:
            outcome = _REPEATED
        elif keeps_factor:
            outcome = _other_factor(image, one) or one
        plan.append((one.topic, one.partition, outcome))
    return plan


def _other_factor(image: Image, wanted: Reassignment) -> KafkaError | None:
    """The error if a partition would get another count of replicas than it had before any move."""
    topic = image.topics.get(wanted.topic)
    if topic is None or wanted.replicas is None:
        return None
    if not 0 <= wanted.partition < len(topic.partitions):
        return None
    now = topic.partitions[wanted.partition]
    count = len(now.replicas) - len(now.adding_replicas)
    if len(wanted.replicas) == count:
        return None
    return KafkaError(
        ErrorCode.invalid_replication_factor,
        f"the replication factor would change from {count} to {len(wanted.replicas)}",
    )


def _answer(node: Node, request: Request, plan: Plan, results: list[KafkaError | None]) -> None:
    answer_in_slices(node, request, _answering(request, plan, results))


def _answering(request: Request, plan: Plan, results: list[KafkaError | None]) -> Answering:
    outcomes = iter(results)
    rows: dict[str, Rows] = defaultdict(partial(Rows, request, "responses", "partitions"))
    for topic, partition, planned in plan:
        outcome = planned if isinstance(planned, KafkaError) else next(outcomes)
        shown = NO_ERROR if outcome is None else error_fields(outcome)
        rows[topic].put({**shown, "partition_index": partition})
        yield None
    listed = Rows(request, "responses")
    for name, found in rows.items():
        listed.put({"name": name, "partitions": found})
        yield None
    allowed = getattr(request.body, "allow_replication_factor_change", True)
    return {
        **_of_all(results),
        "allow_replication_factor_change": allowed,
        "responses": listed,
    }


def _of_all(results: list[KafkaError | None]) -> Values:
    """Whoever is not the controller, or not in time, says so of the whole request: clients look
    for another controller only then."""
    for result in results:
        if result is TIMED_OUT or (result is not None and result.code is ErrorCode.not_controller):
            return error_fields(result)
    return NO_ERROR


API = Api(key=45, first=0, last=1, handle=handle)
