"""What whoever asked a coordinator is told when its journal refuses, or does not commit in time."""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError

_NOT_NOW: Final = (
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_topic_or_partition,
)
_ELSEWHERE: Final = (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error)


def told(error: KafkaError) -> KafkaError:
    """The error of a partition as one of a coordinator."""
    if error.code in _NOT_NOW:
        return KafkaError(ErrorCode.coordinator_not_available, error.message)
    if error.code in _ELSEWHERE:
        return KafkaError(ErrorCode.not_coordinator, error.message)
    return error
