"""Where brokers are: `HOST:PORT`, with commas between several, as every Kafka client takes it."""

from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue

DEFAULT_PORT: Final = 9092
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """At least one; a port that is not given is 9092."""
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise BadValue(f"bootstrap server {text!r}: must be HOST:PORT")
    return addresses


def _parse(text: str) -> Address:
    host, port = _split(text)
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX
    if not host or not is_port or "/" in host:
        raise BadValue(f"bootstrap server {text}: must be HOST:PORT, such as 127.0.0.1:9092")
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str]:
    """An IPv6 address has colons of its own, and stands in brackets where a port follows."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    if text.count(":") > 1:
        return text, str(DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)
