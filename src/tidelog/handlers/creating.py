"""Making topics because somebody asked for them by name, on whichever broker that was.

Only the controller makes topics; another broker asks it to, as a client would. The answer says
which could not be made; those that were made may take a moment to be known here.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import NewTopic
from tidelog.handlers.api import Node
from tidelog.handlers.building import build
from tidelog.handlers.waiting import Patience
from tidelog.wire.codec import entity_type

CREATE_TOPICS: Final = 19
VERSION: Final = 7
TIMEOUT_MS: Final = 10_000
FORWARDED_MAX: Final = 1_000
"""Topics that the controller is asked for at once: its answer has all the settings of each."""

Failures = dict[str, ErrorCode]
"""Why topics could not be made, by name."""


def create(node: Node, topics: Sequence[NewTopic], done: Callable[[Failures], None]) -> None:
    """Makes topics; calls `done` when all that can be done is, or when that takes too long: it
    goes on then."""
    names = [topic.name for topic in topics]
    metadata = node.metadata
    controller_id = metadata.image.controller_id
    not_yet = partial(done, dict.fromkeys(names, ErrorCode.leader_not_available))
    if metadata.controller_epoch is not None or controller_id == node.broker_id:
        patience = Patience(node, timedelta(milliseconds=TIMEOUT_MS), not_yet)

        def made(results: Sequence[object]) -> None:
            patience.end(lambda: done(_failures(names, results)))

        metadata.create_topics(topics, False, made)
    elif controller_id not in metadata.image.brokers:
        node.loop.call_soon(not_yet)
    else:
        request = _request(topics[:FORWARDED_MAX])
        node.peers.forward(
            controller_id, CREATE_TOPICS, VERSION, request, partial(_answered, names, done)
        )


def _request(topics: Sequence[NewTopic]) -> Any:
    wanted = [
        {
            "name": topic.name,
            "num_partitions": topic.partition_count,
            "replication_factor": topic.replication_factor,
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        for topic in topics
    ]
    values = {"topics": wanted, "timeout": TIMEOUT_MS, "validate_only": False}
    return build(entity_type(CREATE_TOPICS, VERSION, "request"), values)


def _answered(
    names: Sequence[str], done: Callable[[Failures], None], answer: Any | KafkaError
) -> None:
    """What was made is not known here yet: like Kafka, that is said to be without a leader. So is
    what was not asked for; a client that comes again asks for it."""
    failures = dict.fromkeys(names, ErrorCode.leader_not_available)
    if not isinstance(answer, KafkaError):
        not_yet = (ErrorCode.none, ErrorCode.topic_already_exists, ErrorCode.not_controller)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        failures |= {name: code for name, code in codes.items() if code not in not_yet}
    done(failures)


def _failures(names: Sequence[str], results: Sequence[object]) -> Failures:
    return {
        name: result.code
        for name, result in zip(names, results, strict=True)
        if isinstance(result, KafkaError)
    }
