"""How far a group is where nobody can say how long a partition is."""

from typing import Any

from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.cli.group_progress import progress_of
from tidelog.client.client import Client
from tidelog.client.groups import Group, Member

FIND_COORDINATOR, OFFSET_FETCH = 10, 9
NOBODY = -1


def partition(index: int, leader: int) -> dict[str, Any]:
    return {"partition_index": index, "leader_id": leader, "error_code": ErrorCode.none}


def answer(_broker: int, api: int, _body: Any) -> dict[str, Any]:
    if api == FIND_COORDINATOR:
        found = {"key": "g", "node_id": 1, "host": "", "port": 0, "error_code": ErrorCode.none}
        return {"coordinators": [{**found, "error_message": None}]}
    assert api == OFFSET_FETCH, "no leader is asked for the end of what nobody leads"
    offset = {"committed_offset": 5, "committed_leader_epoch": -1, "metadata": None}
    row = {"partition_index": 0, **offset, "error_code": ErrorCode.none}
    topics = [{"name": name, "partitions": [row]} for name in ("deleted", "orders")]
    return {"groups": [{"group_id": "g", "topics": topics, "error_code": ErrorCode.none}]}


def test_partitions_without_a_leader_or_a_topic_have_no_lag() -> None:
    """And they are not waited for, so that the others are shown at once."""
    one = TopicPartition("orders", 0)
    member = Member(member_id="m", instance_id=None, client_id="c", host="/h", assignment=(one,))
    group = Group(
        group_id="g",
        group_type="Classic",
        state="Stable",
        coordinator=1,
        assignor="range",
        members=(member,),
    )
    partitions = [partition(0, NOBODY)]
    topics = [{"name": "orders", "partitions": partitions, "error_code": ErrorCode.none}]
    with scripted(answer, topics) as brokers, Client(brokers.addresses[1]) as client:
        found = progress_of(client, [group])["g"]
    assert [(row.partition, row.member, row.log_end, row.lag) for row in found] == [
        (one, member, None, None),
        (TopicPartition("deleted", 0), None, None, None),
    ]
