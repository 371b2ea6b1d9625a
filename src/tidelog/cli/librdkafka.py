"""What `tidelog produce` and `consume` share: how confluent-kafka, librdkafka's Python face, is
set up so that it says what people can use, once, and nothing else.
"""

import logging
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import without_bootstrap
from tidelog.cli.printing import checked, complain
from tidelog.client.addresses import parse_addresses

RECORD_BYTES_MAX: Final = 1_000_000_000


class Outage:
    """Says once that no broker can be reached, and once that one can be again."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.is_on = False

    def error(self, error: Any) -> None:
        """librdkafka's callback: it goes on by itself after all of these errors."""
        if error.code() == ClientError._ALL_BROKERS_DOWN and not self.is_on:
            self.is_on = True
            complain(f"cannot reach {self._bootstrap} any more: trying again (Ctrl-C ends)")

    def over(self) -> None:
        if self.is_on:
            self.is_on = False
            complain(f"{self._bootstrap} is back")


class Interrupts:
    """Ctrl-C, held back while librdkafka runs: in one of its callbacks the exception would be
    lost, or come out as a `SystemError`."""

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Something short of librdkafka; an interrupt is raised when it is done."""
        self._is_held = True
        try:
            return function(*arguments, **named)
        finally:
            self._is_held = False
            if self._is_pending:
                self._is_pending = False
                raise KeyboardInterrupt

    def _heard(self, _number: int, _frame: object) -> None:
        if not self._is_held:
            raise KeyboardInterrupt
        self._is_pending = True


def client_settings(bootstrap: str, outage: Outage, extra: Mapping[str, str]) -> dict[str, Any]:
    """For a producer or consumer; `extra` is what was given in librdkafka's own names."""
    extra = without_bootstrap(dict(extra), bootstrap)
    silent = logging.getLogger("tidelog.librdkafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return {
        "bootstrap.servers": ",".join(map(str, parse_addresses(bootstrap))),
        "client.id": "tidelog",
        "logger": silent,
        "error_cb": outage.error,
        "message.max.bytes": RECORD_BYTES_MAX,
        **extra,
    }


def make(kind: Any, settings: dict[str, Any], option: str) -> Any:
    """A producer or consumer; a setting it does not know is the one that a person gave."""
    for text in (*settings, *settings.values()):
        if isinstance(text, str):
            checked(text)
    try:
        return kind(settings)
    except KafkaException as error:
        raise BadValue(f"{option}: {error.args[0].str()}") from None
