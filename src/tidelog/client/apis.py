"""The requests this client makes: their numbers, and the versions it was written for.

In between those and what a broker serves, the highest counts. One that changes something is not
sent twice when its answer was lost, as the first may have been carried out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    name: str
    key: int
    first: int
    last: int
    is_change: bool = False


PRODUCE: Final = Api(name="Produce", key=0, first=3, last=13, is_change=True)
FETCH: Final = Api(name="Fetch", key=1, first=4, last=17)
LIST_OFFSETS: Final = Api(name="ListOffsets", key=2, first=1, last=10)
METADATA: Final = Api(name="Metadata", key=3, first=4, last=13)
OFFSET_COMMIT: Final = Api(name="OffsetCommit", key=8, first=2, last=9)
OFFSET_FETCH: Final = Api(name="OffsetFetch", key=9, first=8, last=9)
FIND_COORDINATOR: Final = Api(name="FindCoordinator", key=10, first=4, last=6)
DESCRIBE_GROUPS: Final = Api(name="DescribeGroups", key=15, first=4, last=6)
LIST_GROUPS: Final = Api(name="ListGroups", key=16, first=5, last=5)
API_VERSIONS: Final = Api(name="ApiVersions", key=18, first=0, last=3)
CREATE_TOPICS: Final = Api(name="CreateTopics", key=19, first=2, last=7, is_change=True)
DELETE_TOPICS: Final = Api(name="DeleteTopics", key=20, first=1, last=6, is_change=True)
INIT_PRODUCER_ID: Final = Api(name="InitProducerId", key=22, first=0, last=5)
WRITE_TXN_MARKERS: Final = Api(name="WriteTxnMarkers", key=27, first=1, last=2, is_change=True)
ADD_PARTITIONS_TO_TXN: Final = Api(name="AddPartitionsToTxn", key=24, first=0, last=3)
ADD_OFFSETS_TO_TXN: Final = Api(name="AddOffsetsToTxn", key=25, first=0, last=3)
END_TXN: Final = Api(name="EndTxn", key=26, first=0, last=4)
TXN_OFFSET_COMMIT: Final = Api(name="TxnOffsetCommit", key=28, first=3, last=4)
DESCRIBE_CONFIGS: Final = Api(name="DescribeConfigs", key=32, first=1, last=4)
DESCRIBE_LOG_DIRS: Final = Api(name="DescribeLogDirs", key=35, first=1, last=4)
CREATE_PARTITIONS: Final = Api(name="CreatePartitions", key=37, first=0, last=3, is_change=True)
DELETE_GROUPS: Final = Api(name="DeleteGroups", key=42, first=0, last=2, is_change=True)
ELECT_LEADERS: Final = Api(name="ElectLeaders", key=43, first=0, last=2, is_change=True)
ALTER_CONFIGS: Final = Api(name="IncrementalAlterConfigs", key=44, first=0, last=1, is_change=True)
ALTER_REASSIGNMENTS: Final = Api(
    name="AlterPartitionReassignments", key=45, first=0, last=1, is_change=True
)
LIST_REASSIGNMENTS: Final = Api(name="ListPartitionReassignments", key=46, first=0, last=0)
OFFSET_DELETE: Final = Api(name="OffsetDelete", key=47, first=0, last=0)
DESCRIBE_PRODUCERS: Final = Api(name="DescribeProducers", key=61, first=0, last=0)
DESCRIBE_TRANSACTIONS: Final = Api(name="DescribeTransactions", key=65, first=0, last=0)
LIST_TRANSACTIONS: Final = Api(name="ListTransactions", key=66, first=0, last=2)
DESCRIBE_CONSUMER_GROUPS: Final = Api(name="ConsumerGroupDescribe", key=69, first=0, last=1)


def choose_version(api: Api, served: Mapping[int, tuple[int, int]]) -> int:
    """The highest version that both sides know."""
    first, last = served.get(api.key, (0, -1))
    version = min(api.last, last)
    if version < max(api.first, first):
        offered = f"offers {first} to {last}" if last >= first else "does not offer it"
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"{api.name} is needed in a version of {api.first} to {api.last}, "
            f"and the broker {offered}",
        )
    return version


def limited(api: Api, last: int) -> Api:
    """The same, in versions up to that one."""
    return replace(api, last=min(api.last, last))


def at_least(api: Api, first: int) -> Api:
    """The same, in versions from that one on: those before cannot say what is to be said."""
    return replace(api, first=max(api.first, first))
