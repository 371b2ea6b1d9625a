"""What a writer into topics may be told: the options of Spark's own Kafka connector, and ours.

`SinkOptions.parse` refuses what it cannot act on, by name, before any job starts. Names and
meanings are those of Spark and of Kafka's producer; `delivery` is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import is_legal_topic
from tidelog.client.addresses import parse_addresses
from tidelog.records.compression import NAMES
from tidelog.spark.option_values import OptionValues

COLUMNS: Final = ("key", "value", "topic", "partition", "headers", "timestamp")
"""Those that are written; all but `value` may be missing."""
KNOWN: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "delivery",
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
    "kafka.transactional.id": "what is written is not transactional yet",
    "kafka.security.protocol": _NO_SECURITY,
    "kafka.sasl.": _NO_SECURITY,
    "kafka.ssl.": _NO_SECURITY,
    "includeHeaders": "is for reading; a column headers is written where there is one",
    "path": "topics have no path; name one with the option topic, or each row's in a column",
}
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
REQUEST_BYTES_MAX: Final = 1024 * 1024 * 1024
_MIB: Final = 1024 * 1024
_LINGER_MS: Final = 100
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
            timeout_ms=values.whole("kafka.request.timeout.ms", 30_000),
            delivery_timeout_ms=values.whole("kafka.delivery.timeout.ms", 120_000),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    topic: str | None
    """Of all rows; where there is none, each row names its own."""
    batching: Batching
    sending: Sending

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        values = OptionValues(options)
        values.refuse_unknown(KNOWN, REFUSED)
        _check_delivery(values)
        return cls(
            topic=_topic(values), batching=Batching.parse(values), sending=Sending.parse(values)
        )


def _check_delivery(values: OptionValues) -> None:
    if values.choice("delivery", ("at-least-once", "exactly-once"), "at-least-once") != (
        "at-least-once"
    ):
        raise values.bad(
            "delivery",
            "at-least-once: exactly-once needs transactions, which do not exist yet; a task "
            "that is run again writes its rows again",
        )


def _topic(values: OptionValues) -> str | None:
    topic = values.text("topic")
    if topic is not None and not is_legal_topic(topic):
        raise values.bad("topic", "the name of a topic, of letters, digits, '.', '_' and '-'")
    return topic


def _at_most(values: OptionValues, name: str, default: int, most: int) -> int:
    found = values.whole(name, default)
    if found > most:
        raise values.bad(name, f"a whole number of 1 to {most}")
    return found
