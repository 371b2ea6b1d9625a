"""Fetch: records from where a consumer is, as ranges of log files that are sent as they are.

The answer takes what is ready, as much as it may hold, but at least one batch. A consumer
sees what is below the high watermark (R4), or below the last stable offset if it wants
committed transactions only; a follower sees all there is, and says by what it asks for how far
it is. Waiting and cold files are the business of `fetching`; what needs neither goes straight
through (`straight_fetch`).
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Part, Request
from tidelog.handlers.fetching import Answer, Fetching
from tidelog.handlers.found import row_of, tag_diverging
from tidelog.handlers.rows import work_in_slices
from tidelog.handlers.straight_fetch import answer_straight
from tidelog.handlers.wide_fetch import ROWS_MAX, fetching_in_slices
from tidelog.serving.fetch_sessions import FIRST_EPOCH, NO_FOLLOWER, NO_SESSION, FetchSession
from tidelog.wire.fetch import FetchRequest, read_fetch_request, write_fetch_response
from tidelog.wire.one_fetch import read_one_fetch

JOINED_BYTES_MAX: Final = 16 * 1024
"""Larger records leave as they are, beside what is around them: joining would copy them again."""


def handle(node: Node, request: Request) -> Answer | list[Part] | None:
    return answer_straight(node, request) or _handle_any(node, request)


def _handle_any(node: Node, request: Request) -> Answer | None:
    fetch: FetchRequest = request.body
    if fetch.replica_id >= 0 and request.listener != node.inter_broker_listener:
        # A client that passed for a follower could move the high watermark.
        return Answer(0, int(ErrorCode.cluster_authorization_failed), ())
    # Tools that read as consumers do have other negative numbers: kafka-replica-verification -2.
    fetch.replica_id = max(fetch.replica_id, NO_FOLLOWER)
    try:
        session = node.sessions.open(
            fetch.session_id, fetch.session_epoch, node.clock.monotonic_ms()
        )
    except KafkaError as error:
        return Answer(0, int(error.code), ())
    session.follower = fetch.replica_id
    if len(fetch.partitions) + len(fetch.forgotten) > ROWS_MAX:
        work_in_slices(node, request, fetching_in_slices(node, request, session))
        return None
    if fetch.forgotten:
        session.forget(fetch.forgotten)
    session.place(fetch.partitions)
    if session.id != NO_SESSION and not node.sessions.remember(session):
        if fetch.session_epoch != FIRST_EPOCH:
            return Answer(0, int(ErrorCode.fetch_session_id_not_found), ())
        session = FetchSession(NO_SESSION)
        session.follower = fetch.replica_id
        session.place(fetch.partitions)
    return Fetching(node, request, session).start()


def write(request: Request, answer: Answer | list[Part]) -> list[Part]:
    if isinstance(answer, list):
        return answer
    rows = [row_of(found, request.version) for found in answer.found]
    texts = write_fetch_response(
        request.correlation_id, request.version, answer.session_id, answer.error, rows
    )
    tag_diverging(request, texts, answer.found)
    parts: list[Part] = []
    copied = [texts[0]]
    for found, text in zip(answer.found, texts[1:], strict=True):
        records = found.records
        if isinstance(records, bytes) and len(records) <= JOINED_BYTES_MAX:
            copied.append(records)
        elif records is not None:
            parts += [b"".join(copied), records]
            copied = []
        copied.append(text)
    parts.append(b"".join(copied))
    return parts


def read(_key: int, version: int, frame: memoryview, at: int) -> FetchRequest:
    return read_one_fetch(frame, at, version) or read_fetch_request(frame, at, version)


API = Api(key=1, first=4, last=18, handle=handle, read=read, write=write)
