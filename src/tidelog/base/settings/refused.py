"""Settings that Apache Kafka has and tidelog does not know, with the reason.

Nothing is ignored in silence: a file written for Kafka is refused at such a name with a
sentence that says what to do instead; for those that are known and have no effect see
`no_effect`. Names that end in a dot stand for all that begin so.
"""

from typing import Final

_ZOOKEEPER: Final = (
    "tidelog coordinates through ZooKeeper, or by itself on a single node, and has no KRaft "
    "quorum; leave it out and set broker.id and zookeeper.connect"
)
_TIERED: Final = (
    "tidelog has no tiered storage in the broker; closed segments are archived by a Spark job"
)
_METRICS: Final = "tidelog serves its metrics in Prometheus form; set metrics.port"
_JAVA: Final = "it names a Java class or a choice of the Java runtime, and tidelog is not Java"
_VERSION: Final = "tidelog stores record format v2 only and converts to no older one; leave it out"
_THREADS: Final = "one event loop serves a broker, there is no such pool; leave it out"
_PURGATORY: Final = "parked requests are woken and dropped one by one, nothing is purged"
_SHARE: Final = "tidelog serves consumer groups, not share groups"
_LOGIN: Final = "tidelog has no login yet; leave it out"
_LISTENERS: Final = "Kafka dropped it; use listeners and advertised.listeners"
_LOG_DIR_MOVE: Final = "tidelog does not move replicas between the log dirs of one broker"

REFUSED: Final = {
    "process.roles": _ZOOKEEPER,
    "node.id": _ZOOKEEPER,
    "controller.quorum.": _ZOOKEEPER,
    "controller.listener.names": _ZOOKEEPER,
    "controller.performance.": _ZOOKEEPER,
    "metadata.": _ZOOKEEPER,
    "sasl.mechanism.controller.protocol": _ZOOKEEPER,
    "broker.heartbeat.interval.ms": _ZOOKEEPER,
    "broker.session.timeout.ms": _ZOOKEEPER,
    "initial.broker.registration.timeout.ms": _ZOOKEEPER,
    "server.max.startup.time.ms": _ZOOKEEPER,
    "early.start.listeners": _ZOOKEEPER,
    "log.dir.failure.timeout.ms": _ZOOKEEPER,
    "unclean.leader.election.interval.ms": _ZOOKEEPER,
    "zookeeper.metadata.migration.": _ZOOKEEPER,
    "remote.log.": _TIERED,
    "remote.storage.enable": _TIERED,
    "remote.fetch.max.wait.ms": _TIERED,
    "remote.list.offsets.request.timeout.ms": _TIERED,
    "log.local.retention.": _TIERED,
    "local.retention.": _TIERED,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "kafka.metrics.": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "telemetry.": _METRICS,
    "inter.broker.protocol.version": (
        "all brokers of a cluster speak the same protocol; leave it out"
    ),
    "log.message.format.version": _VERSION,
    "message.format.version": _VERSION,
    "log.message.downconversion.enable": _VERSION,
    "message.downconversion.enable": _VERSION,
    "background.threads": _THREADS,
    "group.coordinator.threads": _THREADS,
    "transaction.coordinator.": _THREADS,
    "fetch.purgatory.": _PURGATORY,
    "producer.purgatory.": _PURGATORY,
    "delete.records.purgatory.": _PURGATORY,
    "group.coordinator.new.enable": "tidelog has one group coordinator, for both protocols",
    "group.share.": _SHARE,
    "share.coordinator.": _SHARE,
    "share.fetch.": _SHARE,
    "sasl.kerberos.": _LOGIN,
    "sasl.oauthbearer.": _LOGIN,
    "sasl.login.": _LOGIN,
    "delegation.token.": _LOGIN,
    "sasl.server.callback.handler.class": _JAVA,
    "sasl.client.callback.handler.class": _JAVA,
    "principal.builder.class": _JAVA,
    "security.providers": _JAVA,
    "ssl.provider": _JAVA,
    "ssl.keymanager.algorithm": _JAVA,
    "ssl.trustmanager.algorithm": _JAVA,
    "ssl.secure.random.implementation": _JAVA,
    "ssl.engine.factory.class": _JAVA,
    "password.encoder.keyfactory.algorithm": _JAVA,
    "password.encoder.cipher.algorithm": _JAVA,
    "password.encoder.key.length": _JAVA,
    "password.encoder.iterations": _JAVA,
    "create.topic.policy.class.name": _JAVA,
    "alter.config.policy.class.name": _JAVA,
    "client.quota.callback.class": _JAVA,
    "config.providers": _JAVA,
    "zookeeper.clientCnxnSocket": _JAVA,
    "zookeeper.ssl.protocol": _JAVA,
    "zookeeper.ssl.enabled.protocols": _JAVA,
    "zookeeper.ssl.cipher.suites": _JAVA,
    "zookeeper.ssl.crl.enable": _JAVA,
    "zookeeper.ssl.ocsp.enable": _JAVA,
    "replica.selector.class": "consumers read from the leader; there is nothing to select",
    "control.plane.listener.name": (
        "the controller's requests come over the inter-broker listener; leave it out"
    ),
    "num.replica.alter.log.dirs.threads": _LOG_DIR_MOVE,
    "replica.alter.log.dirs.io.max.bytes.per.second": _LOG_DIR_MOVE,
    "alter.log.dirs.replication.quota.": _LOG_DIR_MOVE,
    "offsets.commit.required.acks": "a commit always waits for all replicas in sync",
    "eligible.leader.replicas.enable": (
        "eligible leaders are always kept; leader.recovery.strategy says how they are used"
    ),
    "confluent.": "it belongs to another vendor's broker; leave it out",
    "unstable.": "versions that Kafka calls unstable are not served",
    "port": _LISTENERS,
    "host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "advertised.host.name": _LISTENERS,
    "replica.lag.max.messages": "there is no message-count lag limit; use replica.lag.time.max.ms",
}


def reason(name: str) -> str | None:
    """Why Kafka's setting of this name is not in the table; None if it is not known here."""
    if name in REFUSED:
        return REFUSED[name]
    return next(
        (why for start, why in REFUSED.items() if start.endswith(".") and name.startswith(start)),
        None,
    )
