"""The client of commands that administer, with settings from a file as Kafka's tools take them.

The names are those of Kafka's AdminClient. What only tunes that client is taken without effect;
what would change whom a command talks to, and how, acts or is refused: a file that asks for TLS
must not be answered in the clear. A name that nobody knows is refused, as by `tidelog produce`.
"""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import BadValue
from tidelog.base.settings.kinds import INT_MAX
from tidelog.cli.kafka_style import client_properties, without_bootstrap
from tidelog.client.client import TIMEOUT_MS, Client

CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", help="Settings of the client, one a line."),
]

_TIMEOUTS: Final = ("default.api.timeout.ms", "request.timeout.ms")
"""The first is for all that a command asks for, and goes before the second."""
_TUNING: Final = frozenset(
    (
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
_POSITIVE: Final = re.compile("0*[1-9][0-9]{0,9}")
_OF_SECURITY: Final = ("sasl.", "ssl.")


def admin_client(bootstrap: str, file: Path | None) -> Client:
    given = without_bootstrap(client_properties(file, None, "--command-config"), bootstrap)
    protocol = given.pop("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise BadValue(f"{file}: security.protocol={protocol}: only PLAINTEXT is spoken here")
    client_id = given.pop("client.id", "tidelog")
    timeouts = [_positive(file, name, given.pop(name)) for name in _TIMEOUTS if name in given]
    unknown = [name for name in given if name not in _TUNING and not name.startswith(_OF_SECURITY)]
    if unknown:
        raise BadValue(f"{file}: {unknown[0]}: is no setting of a client that administers")
    return Client(bootstrap, client_id=client_id, timeout_ms=[*timeouts, TIMEOUT_MS][0])


def _positive(file: Path | None, name: str, text: str) -> int:
    if _POSITIVE.fullmatch(text) is None or int(text) > INT_MAX:
        raise BadValue(f"{file}: {name}={text}: must be a number of milliseconds")
    return int(text)
