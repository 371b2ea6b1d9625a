"""ApiVersions: which APIs are served, in which versions. It is the first thing a client asks.

The answer is made from the table of APIs. A client that asks in a version that is not known
here is answered in version 0, with UNSUPPORTED_VERSION and the versions of ApiVersions itself, as
Apache Kafka does it, and asks again.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, build, respond
from tidelog.wire import codec

_LEGAL_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_WITH_SOFTWARE: Final = 3
_WITHOUT_OPTIONAL: Final = 3
FEATURES: Final[Mapping[str, int]] = {"group.version": 1, "transaction.version": 2}
"""What is agreed on in a cluster rather than with each client: the newer protocol of groups, and
transactions that raise the epoch of their producer whenever they end."""


def handle(node: Node, request: Request) -> Any:
    if request.version >= _WITH_SOFTWARE and not _is_named(request.body):
        return respond(request, {"error_code": ErrorCode.invalid_request, "api_keys": ()})
    values = {"error_code": ErrorCode.none, "api_keys": _rows(node.apis)}
    return respond(request, {**values, **_features(request.version)})


def _features(version: int) -> Values:
    """All that is supported is in force. Clients of version 3 cannot read a feature that may be
    off altogether, so they are not told of those."""
    supported = [
        {"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()
    ]
    finalized = [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, level in FEATURES.items()
    ]
    return {
        "supported_features": supported if version > _WITHOUT_OPTIONAL else (),
        "finalized_features": finalized,
        "finalized_features_epoch": 0,
    }


def _is_named(body: Any) -> bool:
    return all(
        _LEGAL_SOFTWARE.fullmatch(text) is not None
        for text in (body.client_software_name, body.client_software_version)
    )


def _rows(apis: Mapping[int, Api]) -> list[dict[str, int]]:
    return [
        {
            "api_key": api.key,
            "min_version": api.first if api.advertised_first is None else api.advertised_first,
            "max_version": api.last,
        }
        for api in apis.values()
    ]


def refusal(correlation_id: int) -> bytes:
    """What a client is told that asked in a version of the future: which it may ask in."""
    response = build(
        codec.entity_type(API.key, 0, "response"),
        {"error_code": ErrorCode.unsupported_version, "api_keys": _rows({API.key: API})},
    )
    return codec.write_response(API.key, 0, correlation_id, response)


API = Api(key=18, first=0, last=4, handle=handle)
