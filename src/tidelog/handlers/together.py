"""Requests that came together on one connection, and can be served as one: those of Produce.

A client that sends ahead has several of them waiting, and what one costs is much the same for
a few.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.handlers.api import Answers, Api, Request
from tidelog.handlers.wide_produce import ROWS_MAX
from tidelog.records.join_layout import BYTES_MAX
from tidelog.wire.header import read_request_header

PRODUCE: Final = 0
TOGETHER_MAX: Final = 20
"""So many are served as one at most: their answers count as one against a share."""
_PRODUCE_KEY: Final = PRODUCE.to_bytes(2, "big")


def runs_of(frames: list[memoryview]) -> list[list[memoryview]]:
    """Produce requests one behind the other are a run, every other request is alone."""
    runs: list[list[memoryview]] = []
    is_produce = False
    size = 0
    for frame in frames:
        was_produce, is_produce = is_produce, frame[:2] == _PRODUCE_KEY
        size += len(frame)
        is_next = is_produce and was_produce and size <= BYTES_MAX
        if is_next and len(runs[-1]) < TOGETHER_MAX:
            runs[-1].append(frame)
        else:
            runs.append([frame])
            size = len(frame)
    return runs


def read_together(
    connection: Answers, apis: Mapping[int, Api], frames: list[memoryview]
) -> list[Request]:
    """The requests of a run, up to one of another version, one that is served in slices, or one
    that cannot be read: what is wrong with that is said when its turn has come."""
    requests: list[Request] = []
    api = apis.get(PRODUCE)
    if api is None:
        return requests
    for frame in frames:
        try:
            header, at = read_request_header(frame)
            version = header.version
            if not api.first <= version <= api.last or (
                requests and requests[0].version != version
            ):
                break
            body = api.read(api.key, version, frame, at)
        except KafkaError:
            break
        if body.partition_count > ROWS_MAX:
            break
        correlation_id, client_id = header.correlation_id, header.client_id
        requests.append(Request(connection, api, version, correlation_id, client_id, body))
    return requests
