"""A node that looks after groups, for tests of the handlers of groups."""

from typing import Any

from support.admin_node import AdminNode, Wire
from tidelog.base.errors import ErrorCode
from tidelog.wire import codec

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 11, 12, 13, 14, 15, 16
DELETE, OFFSET_DELETE = 42, 47


class GroupNode(AdminNode):
    def __init__(self, **settings: Any) -> None:
        few: dict[str, Any] = {
            "offsets_topic_num_partitions": "2",
            "group_initial_rebalance_delay_ms": "0",
        }
        super().__init__(**few, **settings)
        assert self.ask(FIND_COORDINATOR, 3, key="g", key_type=0).error_code is ErrorCode.none
        assert self.loop.run_until(lambda: not self.coordinators.groups.is_loading)

    def join(self, version: int, member_id: str = "", **more: Any) -> Any:
        """Joins alone, as a client of a version does."""
        joined = self._join(version, member_id, **more)
        if joined.error_code is ErrorCode.member_id_required:
            joined = self._join(version, joined.member_id, **more)
        return joined

    def _join(self, version: int, member_id: str, **more: Any) -> Any:
        return self.ask(JOIN, version, **join_values(member_id, **more))

    def member(self, group_id: str = "g", **more: Any) -> Any:
        """The answer to the join of one that is alone in its stable group."""
        joined = self.join(9, group_id=group_id, **more)
        assert joined.error_code is ErrorCode.none
        work = [{"member_id": joined.member_id, "assignment": b"work"}]
        synced = self.sync(5, joined, assignments=work, group_id=group_id)
        assert synced.error_code is ErrorCode.none
        return joined

    def sync(self, version: int, joined: Any, **more: Any) -> Any:
        values = {
            "group_id": "g",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": (),
            **more,
        }
        return self.ask(SYNC, version, **values)

    def commit(self, version: int, group_id: str = "g", **more: Any) -> Any:
        topic_id = self.metadata.image.topics["orders"].topic_id
        rows = [commit_row(0, 5), commit_row(1, 6)]
        values = {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,
            "topics": [{"name": "orders", "topic_id": topic_id, "partitions": rows}],
            **more,
        }
        return self.ask(OFFSET_COMMIT, version, **values)

    def answer(self, wire: Wire, api_key: int, version: int) -> Any:
        """The answer to a request that was begun, once it is there."""
        assert self.loop.run_until(lambda: bool(wire.sent), 60_000), "there is an answer"
        return codec.read_response(api_key, version, wire.sent[0][4:])[1]


def join_values(member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\6orders\0\0\0\0"}],
        "reason": None,
        **more,
    }


def commit_row(index: int, offset: int, text: str | None = "note") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": text,
    }
