"""The partitions of a request that commits offsets: what is kept for each, and what came of it.

Nearly all requests name a few, and are dealt with at once. One of very many is written in parts and
answered in slices, so that others come in between.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.groups.requests import AnswerCodes, Commit
from tidelog.handlers.api import Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.rows import Rows
from tidelog.slices import Ask

_FEW: Final = 50
_PART: Final = 500

Keep = Callable[[Sequence[Commit], AnswerCodes], None]
"""Keeps offsets and answers for each. Raises if none of them may be kept."""
Named = Callable[[Any], Values]
"""How an answer names a topic of the request."""


class Row:
    """A partition of a request, what is to be kept for it, and what became of that."""

    __slots__ = ("code", "commit", "partition")

    def __init__(self, partition: int, code: ErrorCode, commit: Commit | None) -> None:
        self.partition = partition
        self.code = code
        self.commit = commit


def are_many(request: Request) -> bool:
    return sum(len(topic.partitions) for topic in request.body.topics) > _FEW


def rows_of(known: TopicInfo | None, topic: Any, unknown: ErrorCode) -> Iterator[Row]:
    """Of a topic of a request; `unknown` is for what there is not."""
    count = 0 if known is None else len(known.partitions)
    for partition in topic.partitions:
        index = partition.partition_index
        commit = None
        if known is not None and 0 <= index < count:
            commit = Commit(
                known.name,
                known.topic_id,
                index,
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", -1),
                partition.committed_metadata or "",
            )
        yield Row(index, unknown, commit)


def refuse(rows: Iterable[Row], code: ErrorCode) -> None:
    for row in rows:
        row.code = code


def wanted(rows: Iterable[Row]) -> list[Row]:
    """Those of partitions that exist."""
    return [row for row in rows if row.commit is not None]


def keep_rows(rows: Sequence[Row], keep: Keep, then: Callable[[], None]) -> None:
    def answered(codes: list[ErrorCode]) -> None:
        for row, code in zip(rows, codes, strict=True):
            row.code = code
        then()

    try:
        keep([row.commit for row in rows if row.commit is not None], answered)
    except KafkaError as error:
        answered([error.code] * len(rows))


def keep_in_parts(node: Node, rows: Sequence[Row], keep: Keep) -> Generator[Ask | None, None, None]:
    """Between two parts, others are served."""

    def keep_part(part: Sequence[Row], then: Callable[[], None]) -> None:
        keep_rows(part, keep, partial(node.loop.call_soon, then))

    for start in range(0, len(rows), _PART):
        yield partial(keep_part, rows[start : start + _PART])


def answered_in_slices(
    request: Request, rows: Sequence[Row], named: Named
) -> Generator[Ask | None, None, Rows]:
    outcomes = iter(rows)
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        partitions = Rows(request, "topics", "partitions")
        for row in islice(outcomes, len(topic.partitions)):
            partitions.put(shown(row))
            yield None
        topics.put({**named(topic), "partitions": partitions})
        yield None
    return topics


def shown(row: Row) -> Values:
    return {"partition_index": row.partition, "error_code": row.code}
