"""What the controller and the brokers ask one another: handed to the cluster's metadata, which
knows who may ask. They are served on the listener between brokers only, and never advertised.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.control import VERSIONS
from tidelog.handlers.api import Api, Node, Request


def handle(node: Node, request: Request) -> Any:
    node.metadata.handle(request.body, request.answer)


APIS: Final[Mapping[int, Api]] = {
    key: Api(key=key, first=version, last=version, handle=handle)
    for key, version in VERSIONS.items()
}
