"""Where things stand in the tree: the paths of Kafka's ZooKeeper layout."""

from typing import Final

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

DEFAULT_ENTITY: Final = "<default>"
"""In place of a broker's number: what holds for all brokers."""

BASE: Final = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    "/config",
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    "/config/clients",
    "/config/ips",
    TOPIC_CONFIGS,
    "/config/users",
    "/consumers",
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
)
"""What every broker makes sure of when it starts, parents first."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def incarnation(topic_name: str, topic_id: str) -> str:
    """Beside Kafka's own nodes: one that no other topic of that name has. Versions start anew with
    a node, so a write that is meant for this topic only checks that it is there."""
    return f"{TOPICS}/{topic_name}/{topic_id}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def state(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """None is the default of all brokers."""
    return f"{BROKER_CONFIGS}/{entity(broker_id)}"


def entity(broker_id: int | None) -> str:
    return DEFAULT_ENTITY if broker_id is None else str(broker_id)


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"
