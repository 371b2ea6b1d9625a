"""The speed limit of a reassignment: set before it begins, and taken away when it is done.

As with Kafka's tool, it is a rate for each broker that takes part, and for each topic a list of
the replicas the rate is for: `0:1` is partition 0 on broker 1. Those that are there send slowly,
those that come fetch slowly; all other replicas stay as fast as they are.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import say
from tidelog.cli.reassign_plan import Plan
from tidelog.client.client import Client
from tidelog.client.configs import Resource, alter_configs, describe_configs
from tidelog.client.reassignments import Ongoing

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"
_REPLICAS: Final = (_LEADERS, _FOLLOWERS)

Changes = dict[Resource, dict[str, str | None]]


def throttle_changes(current: Plan, target: Plan, bytes_per_second: int) -> Changes:
    """The settings that hold back the moves from one plan to the other."""
    senders: dict[str, list[str]] = {}
    receivers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for one, replicas in sorted(target.items()):
        coming = [broker for broker in replicas if broker not in current[one]]
        if not coming:
            continue
        brokers.update(current[one], coming)
        sending = [f"{one.partition}:{broker}" for broker in current[one]]
        senders.setdefault(one.topic, []).extend(sending)
        receivers.setdefault(one.topic, []).extend(f"{one.partition}:{b}" for b in coming)
    changes: Changes = {
        Resource("topic", topic): {
            _LEADERS: ",".join(senders[topic]),
            _FOLLOWERS: ",".join(receivers[topic]),
        }
        for topic in senders
    }
    for broker in sorted(brokers):
        changes[Resource("broker", str(broker))] = dict.fromkeys(_RATES, str(bytes_per_second))
    return changes


def stable_replicas(current: Plan, ongoing: Mapping[TopicPartition, Ongoing]) -> Plan:
    """Where replicas were before any move that is under way."""
    return {
        one: tuple(b for b in replicas if one not in ongoing or b not in ongoing[one].adding)
        for one, replicas in current.items()
    }


def with_ongoing(plan: Plan, ongoing: Mapping[TopicPartition, Ongoing]) -> Plan:
    """What will be moving: a topic has one list of the replicas that are held back, which must
    name those of earlier moves too, or these go on as fast as they can."""
    return {**{one: move.target for one, move in ongoing.items()}, **plan}


def apply_throttle(client: Client, changes: Changes) -> None:
    for error in alter_configs(client, changes).values():
        if error is not None:
            raise error


def clear_throttles(client: Client, named: Iterable[str], others: Iterable[str] = ()) -> None:
    """Takes away what is set for topics and for every broker that lives. Whoever is asked may not
    have heard of it yet: of topics that are named, and of brokers, it goes without being seen."""
    brokers = [Resource("broker", str(broker)) for broker in sorted(client.cluster().brokers)]
    sure = [*brokers, *(Resource("topic", topic) for topic in sorted(set(named)))]
    resources = [*sure, *(Resource("topic", topic) for topic in sorted({*others} - {*named}))]
    changes: Changes = {}
    seen: list[Resource] = []
    for resource, configs in describe_configs(client, resources).items():
        if isinstance(configs, KafkaError):
            continue
        own = "DYNAMIC_TOPIC_CONFIG" if resource.kind == "topic" else "DYNAMIC_BROKER_CONFIG"
        names = _REPLICAS if resource.kind == "topic" else _RATES
        if any(c.name in names and c.source == own for c in configs):
            seen.append(resource)
        if resource in seen or resource in sure:
            changes[resource] = dict.fromkeys(names)
    apply_throttle(client, changes)
    for kind in ("broker", "topic"):
        cleared = [resource.name for resource in seen if resource.kind == kind]
        if cleared:
            say(f"Clearing {kind}-level throttles on {kind}s {','.join(cleared)}")
