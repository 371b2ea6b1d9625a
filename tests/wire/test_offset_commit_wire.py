"""Answers to OffsetCommit: the bytes that the codec for all messages writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.admin_node import versions
from tidelog.base.errors import ErrorCode
from tidelog.handlers.building import build
from tidelog.wire import codec
from tidelog.wire.offset_commit import Topic, write_offset_commit_response

OFFSET_COMMIT, BY_ID_FROM = 8, 10
codes = st.sampled_from([ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.stale_member_epoch])
rows = st.lists(st.tuples(st.integers(0, 1 << 30), codes), max_size=200)
names = st.text(min_size=1, max_size=200).filter(lambda name: name.isprintable())


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
@given(st.lists(st.tuples(names, st.binary(min_size=16, max_size=16), rows), max_size=4))
def test_an_answer_is_what_the_codec_writes(
    version: int, topics: list[tuple[str, bytes, list[tuple[int, ErrorCode]]]]
) -> None:
    entity = build(
        codec.entity_type(OFFSET_COMMIT, version, "response"),
        {
            "topics": [
                {
                    "name": name,
                    "topic_id": topic_id,
                    "partitions": [{"partition_index": n, "error_code": c} for n, c in found],
                }
                for name, topic_id, found in topics
            ]
        },
    )
    plain: list[Topic] = [
        (topic_id if version >= BY_ID_FROM else name, found) for name, topic_id, found in topics
    ]
    assert write_offset_commit_response(7, version, plain) == codec.write_response(
        OFFSET_COMMIT, version, 7, entity
    )
