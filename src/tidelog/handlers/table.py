"""All APIs this broker serves, by key. ApiVersions is answered from it."""

from collections.abc import Mapping
from typing import Final

from tidelog.base import control
from tidelog.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from tidelog.handlers.api import Api

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_fetch,
    find_coordinator,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
)

APIS: Final[Mapping[int, Api]] = {module.API.key: module.API for module in _MODULES}

NAMES: Final[Mapping[int, str]] = {
    **{module.API.key: module.__name__.rpartition(".")[2] for module in _MODULES},
    control.LEADER_AND_ISR: "leader_and_isr",
    control.STOP_REPLICA: "stop_replica",
    control.UPDATE_METADATA: "update_metadata",
    control.CONTROLLED_SHUTDOWN: "controlled_shutdown",
    control.REPLICA_STATES: "replica_states",
}
"""Of what is served to clients, and of what brokers ask one another."""
