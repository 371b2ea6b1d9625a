"""All APIs this broker serves, by key. ApiVersions is answered from it."""

from collections.abc import Mapping
from typing import Final

from tidelog.handlers import (
    alter_configs,
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
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
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
    incremental_alter_configs,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
)

APIS: Final[Mapping[int, Api]] = {module.API.key: module.API for module in _MODULES}

NAMES: Final[Mapping[int, str]] = {
    module.API.key: module.__name__.rpartition(".")[2] for module in _MODULES
}
