"""Reading `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

A listener is written NAME://host:port; its name says, through the map, which security
protocol is spoken there. Names are compared in capitals, as in Kafka.
"""

import re
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.settings.kinds import Bound, Value

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP: Final = ",".join(f"{name}:{name}" for name in PROTOCOLS)

_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_-]{1,100})://"
    r"(\[(?P<address>[0-9a-fA-F:.%]+)\]|(?P<host>[0-9a-zA-Z._-]*))"
    r":(?P<port>[0-9]{1,5})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str
    host: str
    port: int


def read_listeners(text: str) -> tuple[Listener, ...]:
    """The listeners in the order they are written, each name once."""
    listeners = tuple(_read_listener(item.strip()) for item in text.split(","))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise BadValue(f"{text}: each listener must have a name of its own")
    return listeners


def _read_listener(item: str) -> Listener:
    match = _LISTENER.fullmatch(item)
    if match is None or int(match["port"]) > 65535:
        raise BadValue(f"{item}: must be NAME://host:port")
    host = match["address"] or match["host"] or ""
    return Listener(name=match["name"].upper(), host=host, port=int(match["port"]))


def read_protocol_map(text: str) -> dict[str, str]:
    """The security protocol of each listener name."""
    protocols: dict[str, str] = {}
    for item in text.split(","):
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or protocol not in PROTOCOLS or name in protocols:
            raise BadValue(f"{item}: must be NAME:PROTOCOL, each name once")
        protocols[name] = protocol
    return protocols


def _are_listeners(value: Value) -> bool:
    assert isinstance(value, str)
    try:
        read_listeners(value)
    except BadValue:
        return False
    return True


def _is_protocol_map(value: Value) -> bool:
    assert isinstance(value, str)
    try:
        read_protocol_map(value)
    except BadValue:
        return False
    return True


LISTENERS: Final = Bound(
    allows=_are_listeners,
    words="NAME://host:port separated by commas, no name twice, such as PLAINTEXT://:9092",
)
PROTOCOL_MAP: Final = Bound(
    allows=_is_protocol_map,
    words=f"NAME:PROTOCOL separated by commas, no name twice, with {', '.join(PROTOCOLS)}",
)
