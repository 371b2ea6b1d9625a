"""The settings of one broker (O2): from its file, changed while it runs, checked as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.base.settings import BROKER, Entry, Listener, Settings, Value, read_listeners

STOCK_FILE = """
# What Apache Kafka 3.9 ships as config/server.properties, without its comments.
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def test_kafkas_own_file_is_taken_as_it_is() -> None:
    settings = Settings.from_properties(STOCK_FILE)
    assert settings["zookeeper.connect"] == "localhost:2181"
    assert settings.whole("broker.id") == 0
    assert settings.log_dirs == ("/tmp/kafka-logs",)
    assert settings.source("log.retention.hours") == "STATIC_BROKER_CONFIG"
    assert settings.source("log.segment.bytes") == "DEFAULT_CONFIG"


def test_values_come_with_their_type() -> None:
    settings = Settings.of({"log.cleanup.policy": "compact,delete", "num.partitions": 3})
    assert settings.words("log.cleanup.policy") == ("compact", "delete")
    assert settings.whole("num.partitions") == 3
    assert settings.flag("auto.create.topics.enable") is True
    assert settings.decimal("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.text("listeners") == "PLAINTEXT://:9092"
    assert len(settings) == len(BROKER)
    assert set(settings) == set(BROKER)


def test_asking_for_what_is_not_in_the_table_is_a_bug() -> None:
    settings = Settings.of({})
    with pytest.raises(AssertionError, match=r"log\.segment is not in the table"):
        settings["log.segment"]
    with pytest.raises(AssertionError, match="not a whole number"):
        settings.whole("auto.create.topics.enable")
    with pytest.raises(AssertionError, match="not text"):
        settings.text("broker.rack")


def test_log_dirs_win_over_log_dir() -> None:
    assert Settings.of({"log.dir": "/a"}).log_dirs == ("/a",)
    assert Settings.of({"log.dir": "/a", "log.dirs": "/b, /c,"}).log_dirs == ("/b", "/c")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"log.dirs": " , "}, "must be at least one folder"),
        ({"log.dirs": "/a,/b,/a"}, "folders that are each named once"),
        ({"broker.id": 1001}, "broker.id=1001: must be at most reserved.broker.max.id=1000"),
        (
            {"broker.id.generation.enable": False},
            "broker.id=-1: must be at least 0 while broker.id.generation.enable=false",
        ),
        (
            {"replica.fetch.wait.max.ms": 10_001},
            "replica.fetch.wait.max.ms=10001: must be at most replica.lag.time.max.ms=10000",
        ),
        (
            {"replica.fetch.wait.max.ms": 9000, "replica.socket.timeout.ms": 8000},
            "must be at most replica.socket.timeout.ms=8000",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1},
            "log.cleaner.min.compaction.lag.ms=2: must be at most",
        ),
        (
            {"log.cleaner.threads": 128},
            "log.cleaner.dedupe.buffer.size=134217728: must be more than 1048576 for each of 128",
        ),
        (
            {"group.consumer.heartbeat.interval.ms": 4000},
            "heartbeat.interval.ms=5000: must be at most group.consumer.heartbeat.interval.ms=4000",
        ),
        (
            {"queued.max.request.bytes": 1000},
            "queued.max.request.bytes=1000: must be at least socket.request.max.bytes=104857600",
        ),
        ({"max.connections.per.ip": 0}, "max.connections.per.ip=0: must be at least 1 unless"),
        (
            {"connections.max.idle.ms": 100},
            "connection.failed.authentication.delay.ms=100: must be less than",
        ),
        ({"listeners": "X://:1"}, "must be such that it has X of listeners"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "addresses that are each named once"),
        (
            {"listeners": "IN://:1", "listener.security.protocol.map": "IN:PLAINTEXT"},
            "security.inter.broker.protocol=PLAINTEXT: must be the name of",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "not 0.0.0.0: set advertised.listeners"),
        ({"advertised.listeners": "SSL://h:1"}, "must be among the names in listeners: PLAINTEXT"),
        ({"inter.broker.listener.name": "SSL"}, "must be an advertised one: PLAINTEXT"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        ({"listeners": "PLAINTEXT://:1,SASL_SSL://:2"}, "SASL_SSL is SASL_SSL, and tidelog has no"),
        (
            {"listeners": "PLAINTEXT://:1", "listener.security.protocol.map": "PLAINTEXT:SSL"},
            "listener.security.protocol.map: the listener PLAINTEXT is SSL, and tidelog has no TLS",
        ),
        ({"listener.name.ssl.max.connections": 5}, "the listener must be one of plaintext"),
    ],
)
def test_o2_values_that_do_not_go_together_are_refused(
    values: dict[str, Value], message: str
) -> None:
    with pytest.raises(BadValue) as refusal:
        Settings.of(values)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "values",
    [
        {"broker.id": 1001, "broker.id.generation.enable": False},
        {"log.cleaner.threads": 0},
        {"log.cleaner.threads": 127},
        {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "localhost:5"},
        {"connections.max.idle.ms": -1},
        {"queued.max.request.bytes": 104857600},
        {"listeners": "PLAINTEXT://0.0.0.0:1", "advertised.listeners": "PLAINTEXT://h:1"},
        {
            "listeners": "CLIENT://:1,INSIDE://:2",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INSIDE:PLAINTEXT,OTHER:SASL_SSL",
            "inter.broker.listener.name": "inside",
        },
    ],
)
def test_values_that_go_together_are_taken(values: dict[str, Value]) -> None:
    assert set(values) <= set(Settings.of(values))


KAFKAS_SECURITY: dict[str, Value] = {
    "ssl.keystore.location": "/k",
    "ssl.keystore.password": "s3cret",
    "ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.jaas.config": "s3cret",
    "connections.max.reauth.ms": 1,
    "security.inter.broker.protocol": "SASL_SSL",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": True,
    "password.encoder.secret": "s3cret",
    "zookeeper.ssl.client.enable": True,
    "zookeeper.ssl.keystore.location": "/k",
    "zookeeper.set.acl": True,
    "listener.name.plaintext.ssl.client.auth": "none",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": "s3cret",
}


@pytest.mark.parametrize("name", KAFKAS_SECURITY)
def test_o2_what_promises_safety_is_refused_with_what_to_do(name: str) -> None:
    """A broker that is told to have clients log in must not serve them without."""
    with pytest.raises(BadValue) as refusal:
        Settings.of({name: KAFKAS_SECURITY[name]})
    assert str(refusal.value).startswith(name)
    assert "leave it out, and run" in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


def test_kafkas_own_defaults_of_security_may_be_written_down() -> None:
    Settings.of({"ssl.client.auth": "none", "authorizer.class.name": "", "ssl.protocol": "TLSv1.3"})


def test_a_listener_may_have_its_own_value() -> None:
    settings = Settings.of({"listener.name.plaintext.max.connections": "5"})
    assert settings.whole_for_listener("PLAINTEXT", "max.connections") == 5
    assert settings.whole_for_listener("OTHER", "max.connections") == 2147483647
    assert settings["max.connections"] == 2147483647


def test_listeners_are_read_with_name_host_and_port() -> None:
    assert read_listeners("plaintext://:9092, SSL://[::1]:9093") == (
        Listener(name="PLAINTEXT", host="", port=9092),
        Listener(name="SSL", host="::1", port=9093),
    )


def test_o2_a_dynamic_setting_changes_without_touching_the_old_settings() -> None:
    before = Settings.of({"log.retention.ms": 1000})
    after = before.with_changes({"log.retention.ms": "2000"})
    assert before["log.retention.ms"] == 1000
    assert after["log.retention.ms"] == 2000
    assert after.source("log.retention.ms") == "DYNAMIC_BROKER_CONFIG"


def test_one_brokers_change_wins_over_the_clusters_and_can_be_taken_back() -> None:
    settings = (
        Settings.of({"log.cleaner.backoff.ms": 2})
        .with_changes({"log.cleaner.backoff.ms": 3}, cluster_wide=True)
        .with_changes({"log.cleaner.backoff.ms": 4})
    )
    assert settings.entries(["log.cleaner.backoff.ms"]) == (
        Entry(name="log.cleaner.backoff.ms", value=4, source="DYNAMIC_BROKER_CONFIG"),
        Entry(name="log.cleaner.backoff.ms", value=3, source="DYNAMIC_DEFAULT_BROKER_CONFIG"),
        Entry(name="log.cleaner.backoff.ms", value=2, source="STATIC_BROKER_CONFIG"),
        Entry(name="log.cleaner.backoff.ms", value=15_000, source="DEFAULT_CONFIG"),
    )
    settings = settings.with_changes({"log.cleaner.backoff.ms": None})
    assert settings["log.cleaner.backoff.ms"] == 3
    settings = settings.with_changes({"log.cleaner.backoff.ms": None}, cluster_wide=True)
    assert settings["log.cleaner.backoff.ms"] == 2


@pytest.mark.parametrize(
    ("changes", "cluster_wide", "message"),
    [
        ({"broker.id": 1}, False, "broker.id cannot change while the broker runs"),
        ({"log.retention.hours": 1}, True, "log.retention.hours cannot change while"),
        ({"listeners": "PLAINTEXT://:1"}, False, "listeners cannot change while the broker runs"),
        ({"advertised.listeners": "PLAINTEXT://h:1"}, False, "advertised.listeners cannot change"),
        ({"log.cleaner.threads": 2}, True, "log.cleaner.threads has no effect: one child"),
        ({"ssl.client.auth": "none"}, False, "ssl.client.auth has no effect: tidelog has no TLS"),
        ({"log.segment.bytes": 1}, False, "log.segment.bytes=1: must be at least 14"),
        ({"log.cleaner.dedupe.buffer.size": 9}, False, "must be more than 1048576"),
        ({"log.segment.byte": 1}, False, "did you mean log.segment.bytes?"),
    ],
)
def test_o2_a_change_that_cannot_be_is_refused_by_name(
    changes: dict[str, Value], cluster_wide: bool, message: str
) -> None:
    with pytest.raises(BadValue) as refusal:
        Settings.of({}).with_changes(changes, cluster_wide=cluster_wide)
    assert message in str(refusal.value)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from(sorted(BROKER)), st.text(max_size=20)),
            st.one_of(
                st.text(max_size=20),
                st.integers(-(1 << 65), 1 << 65).map(str),
                st.sampled_from(["true", "0.5", "A://:1", "SSL", "PLAIN", "a:1", "\\u0", "PEM"]),
            ),
        ),
        max_size=4,
    )
)
def test_garbage_in_a_file_is_taken_or_refused(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{name}={value}" for name, value in lines)
    try:
        settings = Settings.from_properties(text)
    except BadValue as error:
        refusal = str(error)
    else:
        assert set(settings) >= set(BROKER)
        return
    assert refusal
