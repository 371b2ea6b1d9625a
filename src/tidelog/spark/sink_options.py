"""What a writer into topics may be told: the options of Spark's own Kafka connector, and ours.

`SinkOptions.parse` refuses what it cannot act on, by name, before any job starts. Names and
meanings are those of Spark and of Kafka's producer; `delivery` is ours.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import is_legal_topic
from tidelog.client.addresses import parse_addresses
from tidelog.client.client import Client
from tidelog.records.compression import NAMES
from tidelog.spark.option_values import OptionValues

COLUMNS: Final = ("key", "value", "topic", "partition", "headers", "timestamp")
"""Those that are written; all but `value` may be missing."""
KNOWN: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "delivery",
    "txnAppId",
    "txnVersion",
    "kafka.acks",
    "kafka.enable.idempotence",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.linger.ms",
    "kafka.max.request.size",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.delivery.timeout.ms",
    "kafka.request.timeout.ms",
    "kafka.client.id",
    "checkpointLocation",
    "queryName",
)
"""The last two are Spark's own, which it shows to every sink of a stream."""
_NO_SECURITY: Final = "connections are plain; TLS and SASL are not supported"
_OWN_TYPES: Final = "keys and values are written as bytes; make them so in the DataFrame"
REFUSED: Final = {
    "kafka.key.serializer": _OWN_TYPES,
    "kafka.value.serializer": _OWN_TYPES,
    "kafka.partitioner.class": "partitioners are Java classes; give each row a partition instead",
    "kafka.interceptor.classes": "interceptors are Java classes, and nothing here runs them",
    "kafka.transactional.id": "transactions are named after the query; delivery=exactly-once",
    "kafka.security.protocol": _NO_SECURITY,
    "kafka.sasl.": _NO_SECURITY,
    "kafka.ssl.": _NO_SECURITY,
    "includeHeaders": "is for reading; a column headers is written where there is one",
    "path": "topics have no path; name one with the option topic, or each row's in a column",
}
DELIVERIES: Final = ("at-least-once", "exactly-once")
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
REQUEST_BYTES_MAX: Final = 1024 * 1024 * 1024
_MIB: Final = 1024 * 1024
_LINGER_MS: Final = 100
_REQUEST_TIMEOUT_MS: Final = 30_000
_DELIVERY_TIMEOUT_MS: Final = 120_000
_IN_FLIGHT_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How rows are put into record batches."""

    compression: int
    batch_bytes: int
    """How large a batch becomes before it is compressed, a single record aside."""
    request_bytes_max: int
    """What a record may take that goes alone."""
    linger_ms: int
    """How long rows wait for more of them."""

    @classmethod
    def parse(cls, values: OptionValues) -> "Batching":
        request_bytes_max = _at_most(values, "kafka.max.request.size", _MIB, REQUEST_BYTES_MAX)
        batch_bytes = _at_most(values, "kafka.batch.size", _MIB, BATCH_BYTES_MAX)
        compression = values.choice("kafka.compression.type", NAMES, NAMES[0])
        return cls(
            compression=NAMES.index(compression),
            batch_bytes=min(batch_bytes, request_bytes_max),
            request_bytes_max=request_bytes_max,
            linger_ms=values.whole("kafka.linger.ms", _LINGER_MS, least=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How brokers are reached, and what they have to confirm."""

    bootstrap_servers: str
    client_id: str
    acks: int
    is_idempotent: bool
    in_flight_max: int
    timeout_ms: int
    delivery_timeout_ms: int

    @classmethod
    def parse(cls, values: OptionValues) -> "Sending":
        servers = values.needed("kafka.bootstrap.servers", "HOST:PORT, with commas between several")
        try:
            parse_addresses(servers)
        except BadValue:
            allowed = "HOST:PORT, such as 127.0.0.1:9092"
            raise values.bad("kafka.bootstrap.servers", allowed) from None
        acks = ACKS[values.choice("kafka.acks", tuple(ACKS), "all")]
        is_idempotent = values.truth("kafka.enable.idempotence", acks == -1)
        if is_idempotent and acks != -1:
            raise values.bad("kafka.acks", "all where kafka.enable.idempotence is true")
        in_flight = "kafka.max.in.flight.requests.per.connection"
        return cls(
            bootstrap_servers=servers,
            client_id=values.text("kafka.client.id") or "tidelog-spark",
            acks=acks,
            is_idempotent=is_idempotent,
            in_flight_max=_at_most(values, in_flight, _IN_FLIGHT_MAX, _IN_FLIGHT_MAX),
            timeout_ms=values.whole("kafka.request.timeout.ms", _REQUEST_TIMEOUT_MS),
            delivery_timeout_ms=_delivery_timeout_ms(values),
        )

    def client(self) -> Client:
        return Client(self.bootstrap_servers, client_id=self.client_id, timeout_ms=self.timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    topic: str | None
    """Of all rows; where there is none, each row names its own."""
    batching: Batching
    sending: Sending
    is_exactly_once: bool
    series: tuple[str, int] | None
    """Of a batch write: the series it belongs to and its number there, which is written once."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> "SinkOptions":
        values = OptionValues(options)
        values.refuse_unknown(KNOWN, REFUSED)
        sending = Sending.parse(values)
        is_exactly_once = values.choice("delivery", DELIVERIES, DELIVERIES[0]) == DELIVERIES[1]
        if is_exactly_once and not sending.is_idempotent:
            raise values.bad("kafka.enable.idempotence", "true where delivery is exactly-once")
        return cls(
            topic=_topic(values),
            batching=Batching.parse(values),
            sending=sending,
            is_exactly_once=is_exactly_once,
            series=_series(values, is_allowed=is_exactly_once and not is_stream),
        )


def _delivery_timeout_ms(values: OptionValues) -> int:
    """As of Kafka's producer: with room for at least one request."""
    name = "kafka.delivery.timeout.ms"
    linger_ms = values.whole("kafka.linger.ms", _LINGER_MS, least=0)
    least = linger_ms + values.whole("kafka.request.timeout.ms", _REQUEST_TIMEOUT_MS)
    if name in values and values.whole(name, 0) < least:
        allowed = f"kafka.linger.ms + kafka.request.timeout.ms, {least}"
        raise values.bad(name, f"a whole number of at least {allowed}")
    return max(values.whole(name, _DELIVERY_TIMEOUT_MS), least)


def _series(values: OptionValues, *, is_allowed: bool) -> tuple[str, int] | None:
    name, number = values.text("txnAppId"), values.optional_whole("txnVersion", least=0)
    if name is None and number is None:
        return None
    if not is_allowed:
        given = "txnAppId" if name is not None else "txnVersion"
        raise values.bad(given, "left out: it is for batch writes with delivery=exactly-once")
    if number is None or not re.fullmatch(r"[\w.-]{1,100}", name or ""):
        raise values.bad("txnAppId", "a name of letters, digits, . _ and -, with a txnVersion")
    assert name is not None
    return name, number


def _topic(values: OptionValues) -> str | None:
    if "topic" not in values:
        return None
    topic = (values.text("topic") or "").strip()
    if not is_legal_topic(topic):
        raise values.bad("topic", "the name of a topic, of letters, digits, '.', '_' and '-'")
    return topic


def _at_most(values: OptionValues, name: str, default: int, most: int) -> int:
    found = values.whole(name, default)
    if found > most:
        raise values.bad(name, f"a whole number of 1 to {most}")
    return found
