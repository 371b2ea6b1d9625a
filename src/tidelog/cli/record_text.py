"""Records into lines, for `tidelog consume`: in the order and with the properties of
kafka-console-consumer, or a JSON object each.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, Final

from tidelog.base.errors import BadValue
from tidelog.cli.printing import complain, json_text
from tidelog.cli.record_lines import Header, is_true

Decode = Callable[[bytes], bytes]
_PRINTED: Final = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
_TEXTS: Final = ("key.separator", "line.separator", "headers.separator", "null.literal")
_DESERIALIZERS: Final = ("key.deserializer", "value.deserializer", "headers.deserializer")
FORMATTER_PROPERTIES: Final = (*(f"print.{name}" for name in _PRINTED), *_TEXTS, *_DESERIALIZERS)
_NUMBERS: Final[Mapping[str, Struct]] = {
    "ShortDeserializer": Struct(">h"),
    "IntegerDeserializer": Struct(">i"),
    "LongDeserializer": Struct(">q"),
    "FloatDeserializer": Struct(">f"),
    "DoubleDeserializer": Struct(">d"),
}
_AS_THEY_ARE: Final = ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    timestamp: int
    timestamp_type: str
    """`CreateTime`, `LogAppendTime`, or empty if there is no timestamp."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def as_it_is(data: bytes) -> bytes:
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    printed: frozenset[str] = frozenset(("value",))
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    decode_key: Decode = as_it_is
    decode_value: Decode = as_it_is
    decode_header: Decode = as_it_is
    safe: Decode = field(default=as_it_is)
    """What makes a stranger's bytes fit for where they are printed."""

    def line(self, record: OutputRecord) -> bytes:
        parts = [self._part(record, name) for name in _PRINTED if name in self.printed]
        return self.key_separator.join(parts) + self.line_separator

    def _part(self, record: OutputRecord, name: str) -> bytes:
        if name == "timestamp":
            kind = record.timestamp_type
            return f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP"
        if name == "partition":
            return b"Partition:%d" % record.partition
        if name == "offset":
            return b"Offset:%d" % record.offset
        if name == "epoch":
            epoch = record.leader_epoch
            return b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch
        if name == "headers":
            return self._headers(record.headers)
        if name == "key":
            return self._content(record.key, self.decode_key)
        return self._content(record.value, self.decode_value)

    def _headers(self, headers: tuple[Header, ...]) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            self.safe(name.encode("utf-8", "surrogateescape"))
            + b":"
            + self._content(value, self.decode_header)
            for name, value in headers
        )

    def _content(self, data: bytes | None, decode: Decode) -> bytes:
        return self.null_literal if data is None else self.safe(decode(data))


def record_format(properties: Mapping[str, str], safe: Decode) -> RecordFormat:
    """From Kafka's properties."""
    unknown = sorted(set(properties) - set(FORMATTER_PROPERTIES))
    if unknown:
        raise BadValue(f"--property {unknown[0]}: must be one of {', '.join(FORMATTER_PROPERTIES)}")
    usual = {"print.value": "true"}
    wanted = {**usual, **properties}
    texts = {
        name.replace(".", "_"): properties[name].encode() for name in _TEXTS if name in properties
    }
    return RecordFormat(
        printed=frozenset(name for name in _PRINTED if is_true(wanted.get(f"print.{name}", ""))),
        decode_key=_decoder(properties.get("key.deserializer")),
        decode_value=_decoder(properties.get("value.deserializer")),
        decode_header=_decoder(properties.get("headers.deserializer")),
        safe=safe,
        **texts,
    )


def _decoder(class_name: str | None) -> Decode:
    """For Kafka's own deserializers of text and numbers."""
    if class_name is None:
        return as_it_is
    name = class_name.rpartition(".")[2]
    if name in _AS_THEY_ARE:
        return as_it_is
    if name not in _NUMBERS:
        known = ", ".join((*_AS_THEY_ARE, *_NUMBERS))
        raise BadValue(f"deserializer {class_name}: must be one of {known}")
    form = _NUMBERS[name]

    def decode(data: bytes) -> bytes:
        try:
            return str(form.unpack(data)[0]).encode()
        except error:
            raise BadValue(
                f"{name} takes {form.size} bytes, not {len(data)}: {data[:32]!r}"
            ) from None

    return decode


def skipping(line: Callable[[OutputRecord], bytes]) -> Callable[[OutputRecord], bytes]:
    """Nothing is printed of a record that does not decode; why is said."""

    def attempt(record: OutputRecord) -> bytes:
        try:
            return line(record)
        except BadValue as mistake:
            complain(f"{record.topic}-{record.partition} at {record.offset}: {mistake}")
            return b""

    return attempt


def json_line(record: OutputRecord) -> bytes:
    """Bytes that are not UTF-8 are given in base64, in a field of that name."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [
            {
                "key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                **json_bytes("value", value),
            }
            for name, value in record.headers
        ],
    }
    return json_text(fields).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
