"""DescribeConfigs, API 32: the settings of topics and of this broker, with where each comes from.

A broker is named by its number; an empty name asks for what was changed for all brokers. There
are no loggers that could be set, so a broker's list of them is empty.
"""

from collections.abc import Collection
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.config_view import ConfigView, describe_broker, describe_topic
from tidelog.cluster.configs import broker_of
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.config_resources import BROKER, BROKER_LOGGER, TOPIC
from tidelog.handlers.describing import config_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    """What is asked for twice is answered once: each answer is much larger than its question."""
    resources = {
        (resource.resource_type, resource.resource_name): resource
        for resource in request.body.resources
    }
    results = Rows(request, "results")
    for resource in resources.values():
        results.put(_describe(node, request.body, resource))
        yield None
    return {"results": results}


def _describe(node: Node, body: Any, resource: Any) -> Values:
    kind, name = resource.resource_type, resource.resource_name
    try:
        views = _views(node, kind, name, resource.configuration_keys or None)
        outcome = NO_ERROR
    except KafkaError as error:
        views, outcome = [], error_fields(error)
    return {
        **outcome,
        "resource_type": kind,
        "resource_name": name,
        "configs": [_shown(view, body) for view in views],
    }


def _views(node: Node, kind: int, name: str, wanted: Collection[str] | None) -> list[ConfigView]:
    if kind == TOPIC:
        return describe_topic(node.metadata.image, node.settings, name, wanted)
    if kind == BROKER:
        return describe_broker(node.settings, node.broker_id, name, wanted)
    if kind == BROKER_LOGGER and broker_of(name, node.broker_id) is not None:
        return []
    raise KafkaError(
        ErrorCode.invalid_request, f"resource type {kind}, name {name!r}: has no settings here"
    )


def _shown(view: ConfigView, body: Any) -> Values:
    shown = dict(config_fields(view))
    if not body.include_synonyms:
        shown["synonyms"] = ()
    if not getattr(body, "include_documentation", False):
        shown["documentation"] = None
    return shown


API = Api(key=32, first=1, last=4, handle=handle)
