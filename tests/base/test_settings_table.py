"""The table of settings itself (O2): Kafka's names, types, defaults and bounds.

The expected values are typed in from Apache Kafka's own definitions, independently of the
table; a number that a row of the specification gives stands in its place.
"""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.base.settings import BROKER, TOPIC, Setting, Value
from tidelog.base.settings.broker import find_broker_setting, find_topic_setting
from tidelog.base.settings.refused import REFUSED, reason

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647

KAFKA_BROKER_DEFAULTS: dict[str, tuple[str, Value]] = {
    "broker.id": ("int", -1),
    "broker.id.generation.enable": ("boolean", True),
    "reserved.broker.max.id": ("int", 1000),
    "broker.rack": ("string", None),
    "listeners": ("string", "PLAINTEXT://:9092"),
    "advertised.listeners": ("string", None),
    "inter.broker.listener.name": ("string", None),
    "security.inter.broker.protocol": ("string", "PLAINTEXT"),
    "num.network.threads": ("int", 3),
    "num.io.threads": ("int", 8),
    "socket.send.buffer.bytes": ("int", -1),  # Kafka: 102400; docs/adr/0008
    "socket.receive.buffer.bytes": ("int", -1),  # Kafka: 102400; docs/adr/0008
    "socket.request.max.bytes": ("int", 104857600),
    "socket.listen.backlog.size": ("int", 50),
    "max.connections": ("int", INT_MAX),
    "max.connections.per.ip": ("int", INT_MAX),
    "max.connections.per.ip.overrides": ("string", ""),
    "max.connection.creation.rate": ("int", INT_MAX),
    "connections.max.idle.ms": ("long", 600000),
    "connection.failed.authentication.delay.ms": ("int", 100),
    "queued.max.requests": ("int", 500),
    "queued.max.request.bytes": ("long", -1),
    "request.timeout.ms": ("int", 30000),
    "fetch.max.bytes": ("int", 57671680),
    "max.incremental.fetch.session.cache.slots": ("int", 1000),
    "zookeeper.connect": ("string", None),
    "zookeeper.session.timeout.ms": ("int", 18000),
    "zookeeper.connection.timeout.ms": ("int", None),
    "zookeeper.max.in.flight.requests": ("int", 10),
    "zookeeper.set.acl": ("boolean", False),
    "num.partitions": ("int", 1),
    "default.replication.factor": ("int", 1),
    "auto.create.topics.enable": ("boolean", True),
    "delete.topic.enable": ("boolean", True),
    "min.insync.replicas": ("int", 1),
    "unclean.leader.election.enable": ("boolean", False),
    "replica.fetch.wait.max.ms": ("int", 500),
    "replica.fetch.min.bytes": ("int", 1),
    "replica.fetch.max.bytes": ("int", 1048576),
    "replica.fetch.response.max.bytes": ("int", 10485760),
    "replica.fetch.backoff.ms": ("int", 1000),
    "replica.socket.timeout.ms": ("int", 30000),
    "replica.socket.receive.buffer.bytes": ("int", 65536),
    "replica.high.watermark.checkpoint.interval.ms": ("long", 5000),
    "num.replica.fetchers": ("int", 1),
    "auto.leader.rebalance.enable": ("boolean", True),
    "leader.imbalance.check.interval.seconds": ("long", 300),
    "leader.imbalance.per.broker.percentage": ("int", 10),
    "controlled.shutdown.enable": ("boolean", True),
    "controlled.shutdown.max.retries": ("int", 3),
    "controlled.shutdown.retry.backoff.ms": ("long", 5000),
    "log.dir": ("string", "/tmp/kafka-logs"),
    "log.dirs": ("string", None),
    "log.segment.bytes": ("int", 1073741824),
    "log.roll.ms": ("long", None),
    "log.roll.hours": ("int", 168),
    "log.roll.jitter.ms": ("long", None),
    "log.roll.jitter.hours": ("int", 0),
    "log.retention.ms": ("long", None),
    "log.retention.minutes": ("int", None),
    "log.retention.hours": ("int", 168),
    "log.retention.bytes": ("long", -1),
    "log.retention.check.interval.ms": ("long", 300000),
    "log.cleanup.policy": ("list", ("delete",)),
    "log.index.size.max.bytes": ("int", 10485760),
    "log.index.interval.bytes": ("int", 4096),
    "log.flush.interval.messages": ("long", LONG_MAX),
    "log.flush.interval.ms": ("long", None),
    "log.flush.scheduler.interval.ms": ("long", LONG_MAX),
    "log.flush.offset.checkpoint.interval.ms": ("int", 60000),
    "log.flush.start.offset.checkpoint.interval.ms": ("int", 60000),
    "log.segment.delete.delay.ms": ("long", 60000),
    "log.preallocate": ("boolean", False),
    "log.message.timestamp.type": ("string", "CreateTime"),
    "log.message.timestamp.after.max.ms": ("long", LONG_MAX),
    "message.max.bytes": ("int", 1048588),
    "compression.type": ("string", "producer"),
    "num.recovery.threads.per.data.dir": ("int", 1),
    "log.cleaner.enable": ("boolean", True),
    "log.cleaner.threads": ("int", 1),
    "log.cleaner.io.max.bytes.per.second": ("double", 1.7976931348623157e308),
    "log.cleaner.dedupe.buffer.size": ("long", 134217728),
    "log.cleaner.io.buffer.size": ("int", 524288),
    "log.cleaner.io.buffer.load.factor": ("double", 0.9),
    "log.cleaner.backoff.ms": ("long", 15000),
    "log.cleaner.min.cleanable.ratio": ("double", 0.5),
    "log.cleaner.delete.retention.ms": ("long", 86400000),
    "group.min.session.timeout.ms": ("int", 6000),
    "group.max.session.timeout.ms": ("int", 1800000),
    "group.initial.rebalance.delay.ms": ("int", 3000),
    "group.max.size": ("int", INT_MAX),
    "group.consumer.session.timeout.ms": ("int", 45000),
    "group.consumer.heartbeat.interval.ms": ("int", 5000),
    "offset.metadata.max.bytes": ("int", 4096),
    "offsets.retention.minutes": ("int", 10080),
    "offsets.retention.check.interval.ms": ("long", 600000),
    "offsets.topic.num.partitions": ("int", 50),
    "offsets.topic.segment.bytes": ("int", 104857600),
    "offsets.topic.replication.factor": ("short", 3),
    "offsets.commit.timeout.ms": ("int", 5000),
    "transactional.id.expiration.ms": ("int", 604800000),
    "transaction.max.timeout.ms": ("int", 900000),
    "transaction.state.log.num.partitions": ("int", 50),
    "transaction.state.log.replication.factor": ("short", 3),
    "transaction.state.log.min.isr": ("int", 2),
    "transaction.state.log.segment.bytes": ("int", 104857600),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ("int", 10000),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ("int", 3600000),
    "transaction.partition.verification.enable": ("boolean", True),
    "producer.id.expiration.ms": ("int", 86400000),
    "producer.id.expiration.check.interval.ms": ("int", 600000),
    "quota.window.num": ("int", 11),
    "quota.window.size.seconds": ("int", 1),
    "ssl.protocol": ("string", "TLSv1.3"),
    "ssl.enabled.protocols": ("list", ("TLSv1.2", "TLSv1.3")),
    "ssl.client.auth": ("string", "none"),
    "ssl.keystore.password": ("password", None),
    "sasl.enabled.mechanisms": ("list", ("GSSAPI",)),
    "sasl.server.max.receive.size": ("int", 524288),
    "connections.max.reauth.ms": ("long", 0),
    "authorizer.class.name": ("string", ""),
}

KAFKA_TOPIC_DEFAULTS: dict[str, tuple[str, Value]] = {
    "segment.bytes": ("int", 1073741824),
    "segment.ms": ("long", 604800000),
    "segment.jitter.ms": ("long", 0),
    "segment.index.bytes": ("int", 10485760),
    "index.interval.bytes": ("int", 4096),
    "preallocate": ("boolean", False),
    "file.delete.delay.ms": ("long", 60000),
    "retention.ms": ("long", 604800000),
    "retention.bytes": ("long", -1),
    "cleanup.policy": ("list", ("delete",)),
    "min.cleanable.dirty.ratio": ("double", 0.5),
    "min.compaction.lag.ms": ("long", 0),
    "max.compaction.lag.ms": ("long", LONG_MAX),
    "delete.retention.ms": ("long", 86400000),
    "max.message.bytes": ("int", 1048588),
    "flush.messages": ("long", LONG_MAX),
    "flush.ms": ("long", LONG_MAX),
    "compression.type": ("string", "producer"),
    "compression.gzip.level": ("int", -1),
    "compression.lz4.level": ("int", 9),
    "compression.zstd.level": ("int", 3),
    "message.timestamp.type": ("string", "CreateTime"),
    "message.timestamp.before.max.ms": ("long", LONG_MAX),
    "message.timestamp.after.max.ms": ("long", LONG_MAX),
    "min.insync.replicas": ("int", 1),
    "unclean.leader.election.enable": ("boolean", False),
    "leader.replication.throttled.replicas": ("list", ()),
    "follower.replication.throttled.replicas": ("list", ()),
}

EVERY_SETTING = [*BROKER.values(), *TOPIC.values()]


def _names(settings: list[Setting]) -> list[str]:
    return [setting.name for setting in settings]


@pytest.mark.parametrize(("name", "expected"), KAFKA_BROKER_DEFAULTS.items())
def test_o2_broker_settings_have_kafkas_types_and_defaults(
    name: str, expected: tuple[str, Value]
) -> None:
    assert (BROKER[name].kind, BROKER[name].default) == expected


@pytest.mark.parametrize(("name", "expected"), KAFKA_TOPIC_DEFAULTS.items())
def test_o2_topic_settings_have_kafkas_types_and_defaults(
    name: str, expected: tuple[str, Value]
) -> None:
    assert (TOPIC[name].kind, TOPIC[name].default) == expected


def test_numbers_that_the_specification_gives_win_over_kafkas() -> None:
    """I1 says 10000 where Kafka 3.9 has 30000."""
    assert BROKER["replica.lag.time.max.ms"].default == 10_000


def test_groups_may_use_the_newer_protocol_from_the_start() -> None:
    """The wire is Kafka 4.3's, which announces it; Kafka 3.9 has `classic` and `disabled` here."""
    assert BROKER["group.coordinator.rebalance.protocols"].default == ("classic", "consumer")
    assert BROKER["group.consumer.migration.policy"].default == "bidirectional"


def test_tidelogs_own_settings_are_there() -> None:
    """E3 and the request limit of the wire layer; metrics are off until they get a port."""
    assert BROKER["leader.recovery.strategy"].default == "strict"
    assert BROKER["leader.recovery.strategy"].parse("first-isr") == "first-isr"
    assert BROKER["socket.request.other.max.bytes"].default == 4 * 1024 * 1024
    assert BROKER["metrics.port"].default is None
    assert BROKER["offsets.topic.min.isr"].default is None


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=_names(EVERY_SETTING))
def test_every_default_keeps_to_its_own_type_and_bound(setting: Setting) -> None:
    assert setting.accept(setting.default) == setting.default
    if setting.default is not None:
        assert setting.parse(setting.format(setting.default)) == setting.default


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=_names(EVERY_SETTING))
def test_every_setting_is_described_in_one_or_two_sentences(setting: Setting) -> None:
    sentences = re.findall(r".+?[.](?= [A-Z]|$)", setting.doc)
    assert 1 <= len(sentences) <= (3 if setting.no_effect else 2)
    assert "".join(sentences).endswith(".")
    assert 15 <= len(setting.doc) <= (400 if setting.no_effect else 220)


@pytest.mark.parametrize("setting", TOPIC.values(), ids=list(TOPIC))
def test_every_topic_setting_falls_back_to_broker_settings_of_equal_default(
    setting: Setting,
) -> None:
    if setting.name.endswith(".replication.throttled.replicas"):
        assert setting.synonyms == ()
        return
    assert setting.synonyms
    inherited = [
        synonym.convert(BROKER[synonym.name].default)
        for synonym in setting.synonyms
        if BROKER[synonym.name].default is not None
    ]
    assert inherited == [setting.default]


def test_exactly_the_first_synonyms_of_topic_settings_change_for_the_whole_cluster() -> None:
    """As in Kafka: `log.retention.ms` can change while a broker runs, `log.retention.hours` not;
    and none that nothing acts on."""
    acting = [setting for setting in TOPIC.values() if not setting.no_effect]
    chains = [setting.synonyms for setting in acting if setting.synonyms]
    assert {BROKER[chain[0].name].mode for chain in chains} == {"cluster-wide"}
    assert {BROKER[later.name].mode for chain in chains for later in chain[1:]} == {"read-only"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("max.connections", "cluster-wide"),
        ("max.connections.per.ip", "cluster-wide"),
        ("num.replica.fetchers", "cluster-wide"),
        ("log.cleaner.dedupe.buffer.size", "cluster-wide"),
        ("log.cleaner.backoff.ms", "cluster-wide"),
        ("producer.id.expiration.ms", "cluster-wide"),
        ("follower.replication.throttled.rate", "cluster-wide"),
        ("log.cleaner.enable", "read-only"),
        ("zookeeper.connect", "read-only"),
        ("broker.id", "read-only"),
    ],
)
def test_settings_change_in_the_way_kafka_lets_them(name: str, mode: str) -> None:
    assert BROKER[name].mode == mode


def test_the_scope_of_a_setting_is_the_table_it_stands_in() -> None:
    assert {setting.scope for setting in BROKER.values()} == {"broker"}
    assert {setting.scope for setting in TOPIC.values()} == {"topic"}


def test_no_setting_is_both_in_the_table_and_refused() -> None:
    assert not (set(BROKER) | set(TOPIC)) & set(REFUSED)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.segment.bytes", "12", "log.segment.bytes=12: must be at least 14"),
        ("log.retention.ms", "0", "log.retention.ms=0: must be -1 for no limit, or at least 1"),
        ("log.retention.hours", "0", "log.retention.hours=0: must be -1 for no limit"),
        ("log.roll.ms", "0", "log.roll.ms=0: must be at least 1"),
        ("num.partitions", "ten", "num.partitions=ten: must be a whole number between -21"),
        ("num.partitions", "1_000", "num.partitions=1_000: must be a whole number"),
        ("num.partitions", "٣", "num.partitions=٣: must be a whole number"),
        ("num.partitions", "1.0", "num.partitions=1.0: must be a whole number"),
        (
            "num.partitions",
            "2147483648",
            "must be a whole number between -2147483648 and 2147483647",
        ),
        ("num.partitions", "", "num.partitions=: must be a whole number"),
        ("log.retention.bytes", "9223372036854775808", "must be a whole number between -9223"),
        ("offsets.topic.replication.factor", "32768", "must be a whole number between -32768"),
        ("auto.create.topics.enable", "yes", "enable=yes: must be true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.1", "ratio=1.1: must be between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "must be a finite number such as 0.5"),
        ("log.cleaner.io.max.bytes.per.second", "1e999", "must be a finite number"),
        (
            "compression.type",
            "brotli",
            "compression.type=brotli: must be one of uncompressed, zstd",
        ),
        ("log.cleanup.policy", "compact,drop", "must be a comma-separated list of compact, delete"),
        ("compression.gzip.level", "0", "must be between 1 and 9, or -1 for the default"),
        ("compression.lz4.level", "18", "must be between 1 and 17"),
        ("leader.recovery.strategy", "lax", "must be one of strict, first-isr"),
        ("listeners", "localhost:9092", "must be NAME://host:port separated by commas"),
        ("listeners", "A://:1,a://:2", "no name twice"),
        ("listeners", "A://:65536", "must be NAME://host:port"),
        ("listener.security.protocol.map", "A:TLS", "must be NAME:PROTOCOL separated by commas"),
        ("zookeeper.connect", "zoo1", "must be host:port separated by commas"),
        ("zookeeper.connect", "", "must be host:port separated by commas"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "must be host:number"),
        ("super.users", "alice", "must be User:name"),
        ("broker.rack", "", "broker.rack=: must be not empty"),
        ("metrics.port", "65536", "must be between 0 and 65535"),
    ],
)
def test_o2_a_bad_value_is_refused_with_what_would_be_right(
    name: str, text: str, message: str
) -> None:
    with pytest.raises(BadValue) as refusal:
        BROKER[name].parse(text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("auto.create.topics.enable", " TRUE ", True),
        ("num.partitions", "+7", 7),
        ("log.retention.bytes", "-1", -1),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", 1.7976931348623157e308),
        ("log.cleaner.io.buffer.load.factor", ".5", 0.5),
        ("log.cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("listeners", "PLAINTEXT://:0,SSL://[::1]:9093", "PLAINTEXT://:0,SSL://[::1]:9093"),
        ("zookeeper.connect", "a:1,b:2/chroot", "a:1,b:2/chroot"),
        ("max.connections.per.ip.overrides", "::1:5,h:6", "::1:5,h:6"),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, value: Value) -> None:
    assert BROKER[name].parse(text) == value


@pytest.mark.parametrize("text", ["*", "0:1", "0:1,2:3", "", " 0:1 , 1:2 "])
def test_throttled_replicas_are_pairs_or_all(text: str) -> None:
    TOPIC["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize("text", ["*,0:1", "0", "0:1;1:2", "a:b", "*,*"])
def test_other_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match="partition:broker"):
        TOPIC["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", True),
        ("num.partitions", 1.0),
        ("num.partitions", None),
        ("num.partitions", 1 << 31),
        ("auto.create.topics.enable", 1),
        ("log.cleaner.min.cleanable.ratio", float("nan")),
        ("log.cleaner.io.max.bytes.per.second", 10**400),
        ("log.cleanup.policy", ("compact,delete",)),
        ("log.cleanup.policy", (" compact",)),
        ("ssl.cipher.suites", ("",)),
        ("listeners", ("PLAINTEXT://:9092",)),
    ],
)
def test_typed_values_are_held_to_the_same_rules(name: str, value: Value) -> None:
    with pytest.raises(BadValue, match=name):
        BROKER[name].accept(value)


def test_a_whole_number_will_do_for_a_decimal_one() -> None:
    ratio = BROKER["log.cleaner.min.cleanable.ratio"].accept(1)
    assert isinstance(ratio, float)


def test_the_value_of_a_password_is_never_shown() -> None:
    with pytest.raises(BadValue) as refusal:
        BROKER["password.encoder.secret"].accept(123456)
    assert "123456" not in str(refusal.value)


@pytest.mark.parametrize(
    "setting",
    [setting for setting in EVERY_SETTING if setting.kind in ("string", "list")],
    ids=lambda setting: str(setting.name),
)
def test_long_text_takes_time_in_proportion_to_its_length(setting: Setting) -> None:
    """Anyone who may alter a setting could otherwise hold the event loop for seconds."""
    for piece in ("a" + " " * 40, "a:1", "a:1,", " ", "User:", "A://", ";"):
        started = time.thread_time()
        with contextlib.suppress(BadValue):
            setting.parse("x:1" + piece * (100_000 // len(piece)) + "x")
        assert time.thread_time() - started < 1


def test_a_very_long_bad_value_is_shown_in_part() -> None:
    with pytest.raises(BadValue) as refusal:
        BROKER["num.partitions"].parse("9" * 10_000)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "log.retention.hour",
            "log.retention.hour is not a setting; did you mean log.retention.hours?",
        ),
        ("log.segment.byte", "did you mean log.segment.bytes?"),
        ("Broker.Id", "Broker.Id is not a setting; did you mean broker.id?"),
        (
            "retention.ms",
            "retention.ms is a setting of topics; the broker's default for it is log.re",
        ),
        ("leader.replication.throttled.replicas", "is a setting of topics, not of brokers"),
        ("nothing.like.it.at.all", "nothing.like.it.at.all is not a setting"),
        ("", "an empty name is not a setting"),
        ("process.roles", "tidelog coordinates through ZooKeeper"),
        ("controller.quorum.voters", "set broker.id and zookeeper.connect"),
        ("remote.log.storage.system.enable", "archived by a Spark job"),
        ("metric.reporters", "set metrics.port"),
        ("log.message.format.version", "record format v2 only"),
        ("advertised.host.name", "use listeners and advertised.listeners"),
        ("replica.lag.max.messages", "there is no message-count lag limit"),
        ("listener.name.internal.log.dirs", "log.dirs cannot be set for one listener"),
    ],
)
def test_o2_an_unknown_broker_setting_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(BadValue) as refusal:
        find_broker_setting(name)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "log.retention.hours",
            "log.retention.hours is a setting of brokers; of topics it is retent",
        ),
        ("broker.id", "broker.id is a setting of brokers, not of topics"),
        ("retention.msec", "retention.msec is not a topic setting; did you mean retention.ms?"),
        ("remote.storage.enable", "archived by a Spark job"),
        ("message.downconversion.enable", "record format v2 only"),
    ],
)
def test_o2_an_unknown_topic_setting_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(BadValue) as refusal:
        find_topic_setting(name)
    assert message in str(refusal.value)


def test_a_whole_family_of_kafkas_settings_shares_its_reason() -> None:
    assert reason("remote.log.manager.thread.pool.size") == reason("remote.storage.enable")
    assert reason("remote.log") is None


@given(st.sampled_from(EVERY_SETTING), st.text(max_size=30))
def test_any_text_is_read_or_refused_and_reads_back_the_same(setting: Setting, text: str) -> None:
    try:
        value = setting.parse(text)
    except BadValue as error:
        refusal = str(error)
    else:
        assert setting.parse(setting.format(value)) == value
        return
    assert setting.name in refusal


@given(
    st.sampled_from(EVERY_SETTING),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.lists(st.text(alphabet="a ,*:0\x00", max_size=5), max_size=3).map(tuple),
        st.sampled_from(
            ["PLAINTEXT://h:1", "PEM", "PLAIN", "User:a", "0:1,1:2", "https", "TLSv1.2"]
        ),
    ),
)
def test_any_typed_value_is_taken_or_refused_and_reads_back_the_same(
    setting: Setting, given_value: Value
) -> None:
    try:
        value = setting.accept(given_value)
    except BadValue as error:
        refusal = str(error)
    else:
        assert value is None or setting.parse(setting.format(value)) == value
        return
    assert setting.name in refusal
