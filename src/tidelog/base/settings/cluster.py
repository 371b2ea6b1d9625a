"""The broker settings of a broker among others: its identity, ZooKeeper, topics and replication."""

from typing import Final

from tidelog.base.settings.kinds import (
    Setting,
    at_least,
    between,
    matching,
    not_empty,
    one_of,
)
from tidelog.base.settings.security import STORE_TYPES

ZOOKEEPER_HOSTS: Final = matching(
    r"[^,/\s]+:[0-9]{1,5}(\s*,\s*[^,/\s]+:[0-9]{1,5})*(/[^,\s]*)?",
    "host:port separated by commas, with a path after the last if wanted, "
    "such as zoo1:2181,zoo2:2181/tidelog",
)

_IDENTITY: Final = (
    Setting(
        name="broker.id",
        kind="int",
        default=-1,
        bound=at_least(-1),
        doc=(
            "The broker's number in the cluster. With -1 it gets one above "
            "reserved.broker.max.id, and keeps it."
        ),
    ),
    Setting(
        name="broker.id.generation.enable",
        kind="boolean",
        default=True,
        doc="Whether a broker without a number may be given one.",
    ),
    Setting(
        name="reserved.broker.max.id",
        kind="int",
        default=1000,
        bound=at_least(0),
        doc=(
            "The largest number that may be written in broker.id while numbers are also given out."
        ),
    ),
    Setting(
        name="broker.rack",
        kind="string",
        default=None,
        bound=not_empty(),
        doc=(
            "Where the broker stands. Replicas of a partition are spread over as many racks as "
            "there are."
        ),
    ),
)

_ZOOKEEPER: Final = (
    Setting(
        name="zookeeper.connect",
        kind="string",
        default=None,
        bound=ZOOKEEPER_HOSTS,
        doc=(
            "The ensemble as host:port separated by commas, with a path after the last if "
            "wanted. Unset, a single node coordinates itself."
        ),
    ),
    Setting(
        name="zookeeper.session.timeout.ms",
        kind="int",
        default=18_000,
        bound=at_least(1),
        doc="How long ZooKeeper waits for a silent broker before it counts as gone.",
    ),
    Setting(
        name="zookeeper.connection.timeout.ms",
        kind="int",
        default=None,
        bound=at_least(1),
        doc="How long the first connection to ZooKeeper may take. Unset, as long as a session.",
    ),
    Setting(
        name="zookeeper.max.in.flight.requests",
        kind="int",
        default=10,
        bound=at_least(1),
        doc="How many requests to ZooKeeper may be unanswered at a time.",
    ),
    Setting(
        name="zookeeper.set.acl",
        kind="boolean",
        default=False,
        doc="Whether the nodes that brokers create are closed to others.",
    ),
    Setting(
        name="zookeeper.ssl.client.enable",
        kind="boolean",
        default=False,
        doc="Whether ZooKeeper is spoken to over TLS.",
    ),
    Setting(
        name="zookeeper.ssl.keystore.location",
        kind="string",
        default=None,
        bound=not_empty(),
        doc="The file with the certificate and key shown to ZooKeeper.",
    ),
    Setting(
        name="zookeeper.ssl.keystore.password",
        kind="password",
        default=None,
        doc="The password of that file.",
    ),
    Setting(
        name="zookeeper.ssl.keystore.type",
        kind="string",
        default=None,
        bound=one_of(*STORE_TYPES),
        doc="The format of that file. Unset, its name's ending tells.",
    ),
    Setting(
        name="zookeeper.ssl.truststore.location",
        kind="string",
        default=None,
        bound=not_empty(),
        doc="The file with the certificates that ZooKeeper's is checked against.",
    ),
    Setting(
        name="zookeeper.ssl.truststore.password",
        kind="password",
        default=None,
        doc="The password of that file.",
    ),
    Setting(
        name="zookeeper.ssl.truststore.type",
        kind="string",
        default=None,
        bound=one_of(*STORE_TYPES),
        doc="The format of that file. Unset, its name's ending tells.",
    ),
    Setting(
        name="zookeeper.ssl.endpoint.identification.algorithm",
        kind="string",
        default="HTTPS",
        bound=one_of("HTTPS", "https", ""),
        doc="Whether ZooKeeper's certificate must name its host; empty is no.",
    ),
)

_TOPICS: Final = (
    Setting(
        name="num.partitions",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="The partitions of a topic that is created without a number.",
    ),
    Setting(
        name="default.replication.factor",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="The replicas of a topic that is created without a number.",
    ),
    Setting(
        name="auto.create.topics.enable",
        kind="boolean",
        default=True,
        doc="Whether a topic is created when a client first asks for it.",
    ),
    Setting(
        name="delete.topic.enable",
        kind="boolean",
        default=True,
        doc="Whether topics may be deleted.",
    ),
)

_REPLICATION: Final = (
    Setting(
        name="min.insync.replicas",
        kind="int",
        default=1,
        bound=at_least(1),
        doc=(
            "How many replicas must be in sync for a write with acks=all, where the topic does "
            "not say."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind="boolean",
        default=False,
        doc=(
            "Whether a replica outside the ISR may lead when nothing else is left, where the "
            "topic does not say."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="leader.recovery.strategy",
        kind="string",
        default="strict",
        bound=one_of("strict", "first-isr"),
        doc=(
            "How a partition without a live leader is recovered: strict waits until no "
            "acknowledged record can be lost, first-isr takes the first ISR member that "
            "returns. It is tidelog's own."
        ),
    ),
    Setting(
        name="replica.lag.time.max.ms",
        kind="long",
        default=10_000,
        bound=at_least(1),
        doc=(
            "A follower that has not caught up for this long leaves the ISR. Kafka 3.9 waits 30 s."
        ),
    ),
    Setting(
        name="replica.fetch.wait.max.ms",
        kind="int",
        default=500,
        bound=at_least(0),
        doc="How long a follower's fetch waits for records.",
    ),
    Setting(
        name="replica.fetch.min.bytes",
        kind="int",
        default=1,
        bound=at_least(0),
        doc="How many bytes a follower's fetch waits for.",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        kind="int",
        default=1 << 20,
        bound=at_least(0),
        doc=(
            "How much of one partition a follower asks for at a time, and four times that if it "
            "is behind; a larger batch still comes whole."
        ),
    ),
    Setting(
        name="replica.fetch.response.max.bytes",
        kind="int",
        default=10 << 20,
        bound=at_least(0),
        doc="How much a follower asks for in one fetch over all partitions.",
    ),
    Setting(
        name="replica.fetch.backoff.ms",
        kind="int",
        default=1000,
        bound=at_least(0),
        doc="How long a follower waits after a fetch that failed.",
    ),
    Setting(
        name="replica.socket.timeout.ms",
        kind="int",
        default=30_000,
        bound=at_least(1),
        doc="How long a follower waits for its leader's answer.",
    ),
    Setting(
        name="replica.socket.receive.buffer.bytes",
        kind="int",
        default=64 << 10,
        bound=at_least(-1),
        doc="The receive buffer of a follower's socket; -1 leaves it to the system.",
    ),
    Setting(
        name="replica.high.watermark.checkpoint.interval.ms",
        kind="long",
        default=5000,
        bound=at_least(1),
        doc="How often high watermarks are written down.",
    ),
    Setting(
        name="num.replica.fetchers",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="How many connections a follower fetches over from one leader.",
        mode="cluster-wide",
    ),
)

_CONTROLLER: Final = (
    Setting(
        name="auto.leader.rebalance.enable",
        kind="boolean",
        default=True,
        doc="Whether preferred replicas are made leaders again from time to time.",
    ),
    Setting(
        name="leader.imbalance.check.interval.seconds",
        kind="long",
        default=300,
        bound=at_least(1),
        doc="How often the controller looks whether leaders are spread as preferred.",
    ),
    Setting(
        name="leader.imbalance.per.broker.percentage",
        kind="int",
        default=10,
        bound=between(0, 100),
        doc="The share of a broker's partitions that others may lead before they are moved back.",
    ),
    Setting(
        name="controller.socket.timeout.ms",
        kind="int",
        default=30_000,
        bound=at_least(1),
        doc="How long the controller waits for a broker's answer.",
    ),
    Setting(
        name="controlled.shutdown.enable",
        kind="boolean",
        default=True,
        doc="Whether a broker that stops hands its leaderships over first.",
    ),
    Setting(
        name="controlled.shutdown.max.retries",
        kind="int",
        default=3,
        bound=at_least(0),
        doc="How often a broker that stops asks again when leaderships could not be handed over.",
    ),
    Setting(
        name="controlled.shutdown.retry.backoff.ms",
        kind="long",
        default=5000,
        bound=at_least(0),
        doc="How long it waits before it asks again.",
    ),
)

CLUSTER: Final = (*_IDENTITY, *_ZOOKEEPER, *_TOPICS, *_REPLICATION, *_CONTROLLER)
