"""DeleteTopics, API 20: removes topics and their data, by name or from version 6 by id (T6).

A name or id that comes twice, or as both, is refused. `delete.topic.enable=false` refuses all.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import NO_TOPIC_ID, Image, TopicInfo
from tidelog.cluster.znodes import id_text
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields, id_bytes
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.waiting import TIMED_OUT, Patience

_DISABLED_IS_KNOWN_FROM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """A topic as the request names it, and what is wrong with that, if anything."""

    name: str | None
    topic_id: bytes
    error: KafkaError | None


def handle(node: Node, request: Request) -> None:
    asked = _asked(request.body)
    plan = [_check(node, request.version, name, topic_id) for name, topic_id in asked]
    plan = _without_repeats(node.metadata.image, plan)
    wanted = [
        named.topic_id if named.name is None else named.name for named in plan if not named.error
    ]
    too_late = partial(_answer, node, request, plan, [TIMED_OUT] * len(wanted))
    patience = Patience(node, request.body.timeout, too_late)

    def done(results: list[TopicInfo | KafkaError]) -> None:
        patience.end(partial(_answer, node, request, plan, results))

    node.metadata.delete_topics(wanted, done)


def _asked(body: Any) -> list[tuple[str | None, bytes]]:
    if hasattr(body, "topic_names"):
        return [(name, NO_TOPIC_ID) for name in body.topic_names]
    return [(topic.name, id_bytes(topic.topic_id)) for topic in body.topics]


def _check(node: Node, version: int, name: str | None, topic_id: bytes) -> _Named:
    error: KafkaError | None = None
    image = node.metadata.image
    if not node.settings.flag("delete.topic.enable"):
        error = _disabled(version)
    elif name is None and topic_id == NO_TOPIC_ID:
        error = _invalid("neither topic name nor id were specified")
    elif name is not None and topic_id != NO_TOPIC_ID:
        error = _invalid("only one of topic name and id may be specified")
    elif name is None and topic_id not in image.topic_names:
        error = KafkaError(ErrorCode.unknown_topic_id, f"no topic has the id {id_text(topic_id)}")
    return _Named(name=name, topic_id=topic_id, error=error)


def _disabled(version: int) -> KafkaError:
    known = version >= _DISABLED_IS_KNOWN_FROM
    code = ErrorCode.topic_deletion_disabled if known else ErrorCode.invalid_request
    return KafkaError(code, "topic deletion is disabled: delete.topic.enable is false")


def _without_repeats(image: Image, plan: list[_Named]) -> list[_Named]:
    """Once each: what was named more than once, by name or by id, is refused and not deleted."""
    names = [_resolved(image, named) for named in plan]
    counts = Counter(name for name, named in zip(names, plan, strict=True) if not named.error)
    error = _invalid("the topic was specified more than once")
    checked = {
        (named.name, named.topic_id): _Named(name=named.name, topic_id=named.topic_id, error=error)
        if counts[name] > 1
        else named
        for name, named in zip(names, plan, strict=True)
    }
    return list(checked.values())


def _resolved(image: Image, named: _Named) -> str | None:
    return image.topic_names.get(named.topic_id) if named.name is None else named.name


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, why)


def _answer(node: Node, request: Request, plan: list[_Named], results: list[Any]) -> None:
    def answering() -> Answering:
        outcomes = iter(results)
        responses = Rows(request, "responses")
        for named in plan:
            responses.put(_result(named, named.error or next(outcomes)))
            yield None
        return {"responses": responses}

    answer_in_slices(node, request, answering())


def _result(named: _Named, outcome: TopicInfo | KafkaError) -> Values:
    if isinstance(outcome, KafkaError):
        return {**error_fields(outcome), "name": named.name, "topic_id": named.topic_id}
    return {**NO_ERROR, "name": outcome.name, "topic_id": outcome.topic_id}


API = Api(key=20, first=1, last=6, handle=handle)
