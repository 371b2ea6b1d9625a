"""IncrementalAlterConfigs, API 44: sets, deletes, or changes the items of single settings.

What is not named stays. Append and subtract are for settings that are lists.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import ConfigOperation
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.config_resources import Changes, alter, check_no_null

_OPERATIONS: Final[Mapping[int, ConfigOperation]] = {
    0: "set",
    1: "delete",
    2: "append",
    3: "subtract",
}


def handle(node: Node, request: Request) -> None:
    alter(node, request, replace=False, changes_of=_changes)


def _changes(resource: Any) -> Changes:
    changes = {config.name: _change(config) for config in resource.configs}
    check_no_null([n for n, (what, value) in changes.items() if value is None and what != "delete"])
    return changes


def _change(config: Any) -> tuple[ConfigOperation, str | None]:
    operation = _OPERATIONS.get(config.config_operation)
    if operation is None:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{config.name}: {config.config_operation} is not an operation",
        )
    return operation, None if operation == "delete" else config.value


API = Api(key=44, first=0, last=1, handle=handle)
