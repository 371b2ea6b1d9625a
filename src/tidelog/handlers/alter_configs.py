"""AlterConfigs, API 33: replaces all settings of a topic or broker.

What the request does not name goes back to its default; clients prefer
IncrementalAlterConfigs, which leaves the rest alone.
"""

from typing import Any

from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.config_resources import Changes, alter, check_no_null


def handle(node: Node, request: Request) -> None:
    alter(node, request, replace=True, changes_of=_changes)


def _changes(resource: Any) -> Changes:
    check_no_null([config.name for config in resource.configs if config.value is None])
    return {config.name: ("set", config.value) for config in resource.configs}


API = Api(key=33, first=0, last=2, handle=handle)
