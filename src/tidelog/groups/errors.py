"""What goes wrong with the journal of a group, as the members of groups know it."""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError

_AS_MEMBERS_KNOW_IT: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
}
"""Clients look for their coordinator again at the errors of coordinators, and at no others."""


def told(error: KafkaError | None) -> ErrorCode:
    """The code that a member gets for the outcome of a write."""
    if error is None:
        return ErrorCode.none
    return _AS_MEMBERS_KNOW_IT.get(error.code, error.code)


def unknown_member(what: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_member_id, what)


def no_such_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.group_id_not_found, f"there is no group {group_id!r}")
