"""What every request and every answer begins with.

    request header 1:  int16 api key | int16 version | int32 correlation id | string client id
    request header 2:  the same (the client id is not compact), then a tag section
    answer header 0:   int32 correlation id
    answer header 1:   int32 correlation id, then a tag section

An API has request header 2 and answer header 1 from its first flexible version on; only the
answer of ApiVersions always has header 0, as who asks may not know yet what is spoken.
"""

from struct import Struct
from typing import Final

from tidelog.base import control
from tidelog.base.ports import Buffer
from tidelog.wire.values import (
    NAMES,
    UNREADABLE,
    encode_string,
    malformed,
    name_of,
    skip_tags,
    text_malformed,
)

API_VERSIONS: Final = 18
NEVER: Final = 32_768

# The APIs by their first flexible version; those absent here are flexible from version 0, the
# brokers' own among them.
_FLEXIBLE_LATER: Final = {
    1: (27, 44, 48, 49, 53, 54),
    2: (21, 22, *range(29, 32), *range(33, 44)),
    3: (10, 16, 18, 24, 25, 26, 28),
    4: (12, 13, 14, 20, 23, 32),
    5: (15, 19),
    6: (2, 9, 11),
    8: (8,),
    9: (0, 3),
    12: (1,),
    NEVER: (17, 47),
}
FLEXIBLE_FROM: Final = dict.fromkeys((*range(93), *control.VERSIONS), 0) | {
    key: version for version, keys in _FLEXIBLE_LATER.items() for key in keys
}

_START = Struct(">hhih")
_CORRELATION = Struct(">i")


class RequestHeader:
    """Which API is asked, in which version, and by whom."""

    __slots__ = ("api_key", "client_id", "correlation_id", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, version={self.version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def is_flexible(api_key: int, version: int) -> bool:
    """Whether messages of this version are compact and carry tagged fields."""
    return version >= FLEXIBLE_FROM[api_key]


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header, and where in the frame the body begins. Versions nobody serves are read too:
    what to answer to them is for the caller to say."""
    try:
        api_key, version, correlation_id, size = _START.unpack_from(frame)
        at: int = 10
        if size >= 0:
            at += size
            if at > len(frame):
                raise malformed(f"a client id of {size} bytes where {len(frame) - 10} are left")
            encoded = frame[8:at].tobytes()
            client_id = NAMES.get(encoded)
            if client_id is None:
                client_id = name_of(encoded, 2)
        elif size == -1:
            client_id = None
        else:
            raise malformed(f"a client id of {size} bytes")
        if version >= FLEXIBLE_FROM[api_key]:
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    except KeyError:
        raise malformed(f"unknown API key {api_key}") from None
    except UNREADABLE:
        raise text_malformed("a request header") from None
    return RequestHeader(api_key, version, correlation_id, client_id), at


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    start = _START.pack(api_key, version, correlation_id, 0)[:-2]
    tags = b"\x00" if is_flexible(api_key, version) else b""
    return start + encode_string(client_id, flexible=False) + tags


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of an answer."""
    if api_key != API_VERSIONS and is_flexible(api_key, version):
        return _CORRELATION.pack(correlation_id) + b"\x00"
    return _CORRELATION.pack(correlation_id)


def read_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of an answer, and where its body begins."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
        if api_key != API_VERSIONS and is_flexible(api_key, version):
            return correlation_id, skip_tags(frame, 4)
    except UNREADABLE:
        raise malformed("the header of an answer ends early") from None
    return correlation_id, 4
