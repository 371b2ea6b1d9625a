"""Records on their way to a topic, through librdkafka: sent in batches, counted as they are
acknowledged, and what was refused is said.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Final

import typer
from confluent_kafka import KafkaException, Producer

from tidelog.base.errors import BadValue
from tidelog.cli.librdkafka import Interrupts, Outage, client_settings, make
from tidelog.cli.printing import complain, counted, remark
from tidelog.cli.record_lines import InputRecord
from tidelog.client.client import Client

_PATIENCE_MS: Final = 30_000
_STEP_SECONDS: Final = 0.1
_LAST_SECONDS: Final = 2
_CREATION_MS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    topic: str
    partition: int | None
    bootstrap: str


def write_records(
    where: Destination,
    records: Iterable[InputRecord | None],
    settings: Mapping[str, str],
    *,
    one_by_one: bool,
) -> None:
    _check(where)
    outage = Outage(where.bootstrap)
    producer = make(Producer, _settings(where, outage, settings), "--producer-property")
    with Interrupts() as interrupts:
        sender = Sender(producer, where, outage, interrupts)
        _send_all(sender, records, one_by_one=one_by_one or sys.stdin.isatty())


def _send_all(sender: "Sender", records: Iterable[InputRecord | None], *, one_by_one: bool) -> None:
    """What came before a mistake or Ctrl-C is written, as far as that is possible."""
    try:
        _send_each(sender, records, one_by_one=one_by_one)
    except KeyboardInterrupt:
        remark("")
        sender.flush(_LAST_SECONDS)
        raise
    sender.report()


def _send_each(
    sender: "Sender", records: Iterable[InputRecord | None], *, one_by_one: bool
) -> None:
    try:
        for record in records:
            if record is None:
                sender.listen()
                continue
            sender.send(record)
            if one_by_one:
                sender.flush()
    except BadValue:
        sender.flush()
        raise
    sender.flush()


def _check(where: Destination) -> None:
    """Asks for the topic, which makes it if brokers are set so; then mistakes are known at once."""
    with Client(where.bootstrap) as client:
        topic = client.topic_soon(where.topic, _CREATION_MS_MAX)
    count = len(topic.partitions)
    if where.partition is not None and where.partition >= count:
        raise BadValue(
            f"--partition {where.partition}: {where.topic} has partitions 0 to {count - 1}"
        )


def _settings(where: Destination, outage: Outage, given: Mapping[str, str]) -> dict[str, Any]:
    """Records are neither lost nor doubled nor swapped where the broker is to confirm them."""
    is_safe = given["acks"] in ("all", "-1")
    usual = {
        "partitioner": "murmur2_random",
        "message.timeout.ms": str(_PATIENCE_MS),
        "enable.idempotence": "true" if is_safe else "false",
    }
    return client_settings(where.bootstrap, outage, {**usual, **given})


class Sender:
    def __init__(
        self, producer: Any, where: Destination, outage: Outage, interrupts: Interrupts
    ) -> None:
        self._producer = producer
        self._call = interrupts.call
        self._topic = where.topic
        self._partition = {} if where.partition is None else {"partition": where.partition}
        self._outage = outage
        self._written = 0
        self._refused = 0

    def send(self, record: InputRecord) -> None:
        while True:
            try:
                self._call(
                    self._producer.produce,
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers) or None,
                    on_delivery=self._delivered,
                    **self._partition,
                )
            except BufferError:
                self._call(self._producer.poll, _STEP_SECONDS)
            except KafkaException as error:
                self._delivered(error.args[0], None)
                return
            else:
                self._call(self._producer.poll, 0)
                return

    def listen(self) -> None:
        """What has become of records meanwhile, and of the brokers, is said while none comes."""
        self._call(self._producer.poll, 0)

    def flush(self, seconds_max: float = inf) -> None:
        """In steps, so that Ctrl-C is heard. What takes longer is lost, and that is said."""
        deadline = monotonic() + seconds_max
        while left := self._call(self._producer.flush, _STEP_SECONDS):
            if monotonic() > deadline:
                complain(f"{counted(left)} may not have been written")
                return

    def report(self) -> None:
        if self._refused:
            total = self._written + self._refused
            complain(f"{self._refused} of {total} records were not written")
            raise typer.Exit(1)
        remark(f"{counted(self._written)} written to {self._topic}")

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self._written += 1
            self._outage.over()
            return
        self._refused += 1
        if self._refused == 1:
            complain(f"{error.name().lstrip('_')}: {error.str()}")
