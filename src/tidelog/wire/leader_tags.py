"""What an answer to Fetch or Produce says besides: where two logs part, and who leads now.

These are tagged fields, and rare: most answers have none. So an answer is written without them
and they are put into it afterwards, which leaves the usual answer as fast as it is. A client that
is told the new leader and its address with the error need not ask for metadata first.

    Fetch     partition, 12+:  0  int32 epoch | int64 end offset | tags   where the logs part
                               1  int32 leader | int32 leader epoch | tags
              whole, 16+:      0  endpoints [int32 broker | host | int32 port | rack | tags]
    Produce   partition, 10+:  0  int32 leader | int32 leader epoch | tags
              whole, 10+:      0  endpoints, as above
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.wire.fetch import FLEXIBLE
from tidelog.wire.produce import ProduceRequest
from tidelog.wire.values import INT32, encode_count, encode_string, read_varint, varint

FETCH_ENDPOINTS: Final = 16
PRODUCE_LEADERS: Final = 10

_DIVERGING = Struct(">BBiqB")
_LEADER = Struct(">BBiiB")
# Of a result in a Produce answer: all before its message.
_RESULT = Struct(">ihqqqB")


class FetchTags(NamedTuple):
    """What is said of one partition; None says nothing."""

    diverging: tuple[int, int] | None = None
    """The last epoch both logs may have, and where the leader's log ends it."""
    current_leader: tuple[int, int] | None = None
    """Broker and leader epoch."""


class NodeEndpoint(NamedTuple):
    """Where a broker that leads now is reached, through the listener the client uses."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


def tag_fetch_response(
    pieces: list[bytes],
    version: int,
    tagged: Mapping[int, FetchTags],
    endpoints: Sequence[NodeEndpoint] = (),
) -> None:
    """Puts into what `write_fetch_response` made what is to be said of some of its partitions, by
    their row. A version that has no such fields stays as it is."""
    if version < FLEXIBLE:
        return
    size = INT32.unpack_from(pieces[0])[0] - sum(map(len, pieces))
    for row, tags in tagged.items():
        # The piece behind a partition's records begins with its tag section.
        after = pieces[row + 1]
        assert after[0] == 0, f"row {row} has tagged fields already"
        pieces[row + 1] = _partition_tags(tags) + after[1:]
    if endpoints and version >= FETCH_ENDPOINTS:
        pieces[-1] = pieces[-1][:-1] + _endpoint_tags(endpoints)
    pieces[0] = INT32.pack(size + sum(map(len, pieces))) + pieces[0][4:]


def tag_produce_response(
    frame: bytes,
    version: int,
    request: ProduceRequest,
    leaders: Mapping[int, tuple[int, int]],
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """What `write_produce_response` made, with the broker and leader epoch that lead some of the
    request's partitions now, by their row. An older version stays as it is."""
    if version < PRODUCE_LEADERS:
        return frame
    out = bytearray()
    copied, row, at = 4, 0, 9 + len(varint(len(request.groups) + 1))
    for head, count in request.groups:
        at += len(head)
        for _ in range(count):
            size, at = read_varint(frame, at + _RESULT.size)
            at += max(size - 1, 0) + 1
            if row in leaders:
                out += frame[copied : at - 1]
                out += b"\x01" + _LEADER.pack(0, 9, *leaders[row], 0)
                copied = at
            row += 1
        at += 1
    out += frame[copied:-1]
    out += _endpoint_tags(endpoints) if endpoints else b"\x00"
    return INT32.pack(len(out)) + out


def _partition_tags(tags: FetchTags) -> bytes:
    fields = []
    if tags.diverging is not None:
        fields.append(_DIVERGING.pack(0, 13, *tags.diverging, 0))
    if tags.current_leader is not None:
        fields.append(_LEADER.pack(1, 9, *tags.current_leader, 0))
    return varint(len(fields)) + b"".join(fields)


def _endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tag section of a whole answer."""
    listed = [
        INT32.pack(broker_id)
        + encode_string(host, True)
        + INT32.pack(port)
        + encode_string(rack, True)
        + b"\x00"
        for broker_id, host, port, rack in endpoints
    ]
    content = encode_count(len(listed), True) + b"".join(listed)
    return b"\x01\x00" + varint(len(content)) + content
