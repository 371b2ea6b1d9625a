"""Whose settings a request is about, and changing them: what AlterConfigs and
IncrementalAlterConfigs share.

Each resource is changed as a whole or not at all, and answered in the order of the request.
What is wrong with the request itself is found here; what is wrong with a value, by `Metadata`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import ConfigChange, ConfigOperation
from tidelog.handlers.api import Node, Request
from tidelog.handlers.building import NO_ERROR, error_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
_KINDS: Final[Mapping[int, Literal["topic", "broker"]]] = {TOPIC: "topic", BROKER: "broker"}

Changes = Mapping[str, tuple[ConfigOperation, str | None]]
Outcome = ConfigChange | KafkaError


def alter(
    node: Node, request: Request, *, replace: bool, changes_of: Callable[[Any], Changes]
) -> None:
    """Changes what a request asks for; `changes_of` reads one of its resources."""
    resources = request.body.resources
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    plan: list[Outcome] = []
    for resource in resources:
        try:
            _check(resource, counts, replace)
            plan.append(
                ConfigChange(
                    kind=_KINDS[resource.resource_type],
                    name=resource.resource_name,
                    changes=changes_of(resource),
                    replace=replace,
                )
            )
        except KafkaError as error:
            plan.append(error.with_traceback(None))
    wanted = [change for change in plan if isinstance(change, ConfigChange)]
    done = partial(_answer, node, request, plan)
    node.metadata.alter_configs(wanted, request.body.validate_only, done)


def _check(resource: Any, counts: Mapping[tuple[int, str], int], replace: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if counts[kind, name] > 1:
        raise _invalid("each resource must appear at most once")
    if kind == BROKER_LOGGER and not replace:
        raise KafkaError(ErrorCode.invalid_config, "this broker has no loggers that can be set")
    if kind not in _KINDS:
        raise _invalid(f"resources of type {kind} have no settings that can be changed here")
    if len({config.name for config in resource.configs}) < len(resource.configs):
        raise _invalid("each setting of a resource must appear at most once")


def check_no_null(names: list[str]) -> None:
    """Only a deletion does without a value."""
    if names:
        raise _invalid(f"a null value is not supported for: {', '.join(names)}")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, why)


def _answer(
    node: Node, request: Request, plan: list[Outcome], results: list[KafkaError | None]
) -> None:
    def answering() -> Answering:
        outcomes = iter(results)
        responses = Rows(request, "responses")
        for resource, planned in zip(request.body.resources, plan, strict=True):
            outcome = planned if isinstance(planned, KafkaError) else next(outcomes)
            responses.put(
                {
                    **(NO_ERROR if outcome is None else error_fields(outcome)),
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
            yield None
        return {"responses": responses}

    answer_in_slices(node, request, answering())
