"""What a reader of topics may be told: the options of Spark's own Kafka connector, and ours.

`SourceOptions.parse` refuses what it cannot act on, by name, before anything is read. Names and
meanings are Spark's; ours in addition are `columns`, `maxBytesPerTrigger` and
`maxBytesPerPartition`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import is_legal_topic
from tidelog.client.addresses import parse_addresses
from tidelog.spark.bounds import ENDINGS, Bound, check_order, parse_ending, parse_starting
from tidelog.spark.option_values import OptionValues

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
KNOWN: Final = (
    "kafka.bootstrap.servers",
    *SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "columns",
    "includeHeaders",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.client.id",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.request.timeout.ms",
)
_NO_SECURITY: Final = "connections are plain; TLS and SASL are not supported"
_OWN_TYPES: Final = "keys and values are read as bytes; cast or parse them in the DataFrame"
REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets; offsets are Spark's, not the consumer's",
    "kafka.key.deserializer": _OWN_TYPES,
    "kafka.value.deserializer": _OWN_TYPES,
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "interceptors are Java classes, and nothing here runs them",
    "kafka.fetch.min.bytes": "records that are planned are there, and none are waited for",
    "kafka.max.poll.records": "use maxOffsetsPerTrigger, maxRecordsPerPartition or both",
    "groupIdPrefix": "no groups are made up; name the one to commit to whole, with kafka.group.id",
    "kafka.security.protocol": _NO_SECURITY,
    "kafka.sasl.": _NO_SECURITY,
    "kafka.ssl.": _NO_SECURITY,
    "path": "topics have no path; name them with subscribe, subscribePattern or assign",
}
_OF_TABLE: Final = "option."
_FORGOTTEN: Final = (
    "Spark forgets what is set for a table; set it where the table is read, "
    "with SELECT ... FROM table WITH (...)"
)
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topics and partitions are read; exactly one of the three is set."""

    topics: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None
    """Of Python's syntax, and found anywhere in a name, as Spark's own connector has it."""
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @classmethod
    def parse(cls, values: OptionValues) -> "Subscription":
        given = [name for name in SUBSCRIPTIONS if (values.text(name) or "").strip()]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            raise BadValue(f"exactly one of {', '.join(SUBSCRIPTIONS)} must be given: {found}")
        if given[0] == "subscribe":
            topics = values.names("subscribe", "names of topics")
            _check_topics(values, "subscribe", topics)
            return cls(topics=tuple(sorted(topics)))
        if given[0] == "assign":
            assigned = values.partition_lists("assign")
            _check_topics(values, "assign", tuple(assigned))
            return cls(assigned=assigned)
        try:
            return cls(pattern=re.compile((values.text("subscribePattern") or "").strip()))
        except re.error as error:
            raise values.bad(
                "subscribePattern", f"a regular expression of Python's syntax, not Java's ({error})"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one micro-batch takes; None where nothing was set."""

    rows_max: int | None
    rows_min: int | None
    bytes_max: int | None
    delay_ms_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """How ranges are cut into tasks; without any of it, one task reads one partition."""

    tasks_min: int | None
    rows_max: int | None
    bytes_max: int | None

    @property
    def is_by_bytes(self) -> bool:
        return self.tasks_min is not None or self.bytes_max is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """How brokers are reached and asked."""

    bootstrap_servers: str
    client_id: str
    timeout_ms: int
    retries: int
    retry_delay_ms: int
    read_timeout_ms: int
    """How long a task waits for records that were there when it was planned."""
    partition_bytes_max: int
    wait_ms_max: int
    committed_only: bool

    @classmethod
    def parse(cls, values: OptionValues) -> "Connecting":
        servers = values.needed("kafka.bootstrap.servers", "HOST:PORT, with commas between several")
        try:
            parse_addresses(servers)
        except BadValue:
            raise values.bad(
                "kafka.bootstrap.servers", "HOST:PORT, such as 127.0.0.1:9092"
            ) from None
        isolation = values.choice("kafka.isolation.level", ISOLATION_LEVELS, ISOLATION_LEVELS[0])
        return cls(
            bootstrap_servers=servers,
            client_id=values.text("kafka.client.id") or "tidelog-spark",
            timeout_ms=values.whole("kafka.request.timeout.ms", 30_000),
            retries=values.whole("fetchOffset.numRetries", 3, least=0),
            retry_delay_ms=values.whole("fetchOffset.retryIntervalMs", 1_000, least=0),
            read_timeout_ms=values.whole("kafkaConsumer.pollTimeoutMs", 120_000),
            partition_bytes_max=_fetch_bytes(values),
            wait_ms_max=values.whole("kafka.fetch.max.wait.ms", 500, least=0),
            committed_only=isolation == "read_committed",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    connecting: Connecting
    subscription: Subscription
    starting: Bound
    ending: Bound
    group_id: str | None
    """Offsets are committed there too."""
    fail_on_data_loss: bool
    limits: Limits
    splitting: Splitting
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> "SourceOptions":
        values = OptionValues(options)
        values.refuse_unknown(KNOWN, REFUSED)
        starting = parse_starting(values, is_stream=is_stream)
        ending = parse_ending(values, is_stream=is_stream)
        check_order(starting, ending)
        return cls(
            connecting=Connecting.parse(values),
            subscription=Subscription.parse(values),
            starting=starting,
            ending=ending,
            group_id=_parse_group(values),
            fail_on_data_loss=values.truth("failOnDataLoss", True),
            limits=_parse_limits(values, is_stream=is_stream),
            splitting=Splitting(
                tasks_min=values.optional_whole("minPartitions"),
                rows_max=values.optional_whole("maxRecordsPerPartition"),
                bytes_max=values.optional_whole("maxBytesPerPartition"),
            ),
            columns=_parse_columns(values),
        )

    @classmethod
    def parse_for_either(cls, options: Mapping[str, str]) -> "SourceOptions":
        """While it is not known what they are for: only a batch has an end, and what a stream does
        not take, a batch without an end does not take either."""
        values = OptionValues(options)
        return cls.parse(options, is_stream=not any(name in values for name in ENDINGS))


def _parse_group(values: OptionValues) -> str | None:
    group_id = values.text("kafka.group.id")
    if group_id is not None and not group_id.strip():
        raise values.bad("kafka.group.id", "the name of a group")
    return group_id


def parse_table_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a table that is being declared. What else is set there is refused: Spark does
    not hand it on when the table is read."""
    given = {
        name.removeprefix(_OF_TABLE): value
        for name, value in options.items()
        if name.startswith(_OF_TABLE)
    }
    columns = ("columns", "includeHeaders")
    values = OptionValues(given)
    values.refuse_unknown(columns, {name: _FORGOTTEN for name in KNOWN if name not in columns})
    return _parse_columns(values)


def _parse_columns(values: OptionValues) -> tuple[str, ...]:
    with_headers = values.truth("includeHeaders", False)
    if "columns" not in values:
        return (*COLUMNS, HEADERS) if with_headers else COLUMNS
    spelled = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    allowed = f"some of {', '.join(spelled.values())}"
    found = values.names("columns", allowed)
    if any(name.lower() not in spelled for name in found):
        raise values.bad("columns", allowed)
    columns = tuple(spelled[name.lower()] for name in found)
    if len(set(columns)) != len(columns):
        raise values.bad("columns", f"{allowed}, each once")
    if with_headers and HEADERS not in columns:
        raise values.bad("columns", "a list with headers in it where includeHeaders is true")
    return columns


def _parse_limits(values: OptionValues, *, is_stream: bool) -> Limits:
    names = (
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    )
    if not is_stream:
        for name in names:
            if name in values:
                raise values.bad(name, "left out of a batch, which is one read with no triggers")
    limits = Limits(
        rows_max=values.optional_whole("maxOffsetsPerTrigger"),
        rows_min=values.optional_whole("minOffsetsPerTrigger"),
        bytes_max=values.optional_whole("maxBytesPerTrigger"),
        delay_ms_max=values.duration_ms("maxTriggerDelay", 15 * 60 * 1000),
    )
    if limits.rows_min and limits.rows_max and limits.rows_min > limits.rows_max:
        raise values.bad("minOffsetsPerTrigger", f"at most maxOffsetsPerTrigger, {limits.rows_max}")
    return limits


def _fetch_bytes(values: OptionValues) -> int:
    """Each fetch is of one partition, so that the smaller of the two counts."""
    name = "kafka.max.partition.fetch.bytes"
    found = values.whole(name, _FETCH_BYTES)
    if found > _FETCH_BYTES_MAX:
        raise values.bad(name, f"a whole number of 1 to {_FETCH_BYTES_MAX}")
    return min(found, values.whole("kafka.fetch.max.bytes", _FETCH_BYTES_MAX))


_FETCH_BYTES: Final = 8 * 1024 * 1024
"""Where large records come through a port each fetch is an Arrow batch, which has its price
whatever its size: those of 1 KB are read a tenth faster than by 4 MB at a time."""
_FETCH_BYTES_MAX: Final = 64 * 1024 * 1024


def _check_topics(values: OptionValues, option: str, topics: tuple[str, ...]) -> None:
    if not all(is_legal_topic(topic) for topic in topics):
        raise values.bad(option, "names of topics, of letters, digits, '.', '_' and '-'")
