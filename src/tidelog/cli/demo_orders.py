"""The demo's shop: orders that keep coming, some records that are none, and a ledger of what was
acknowledged, for the audit at the end.
"""

import csv
import json
import time
import zlib
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final

from confluent_kafka import Producer

PAUSE_S: Final = 0.02
AT_A_TIME: Final = 10
POISON_EVERY: Final = 40
FLUSH_SECONDS_MAX: Final = 60.0
CUSTOMERS: Final = ("ada", "alan", "barbara", "donald", "edsger", "grace", "leslie", "radia")
POISON: Final = b"{this is no order"


class Orders:
    """A producer in a thread of its own. What is acknowledged goes into the ledger at once."""

    def __init__(self, bootstrap: str, topic: str, ledger: Path) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 250,
                "log_level": 0,
            }
        )
        self._file = ledger.open("w", newline="", encoding="utf-8")
        self._ledger = csv.writer(self._file)
        self._ledger.writerow(("topic", "partition", "offset", "checksum"))
        self._lock = Lock()
        self._acknowledged_at: list[float] = []
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.sent = 0
        self.poison = 0
        self.failed = 0

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return len(self._acknowledged_at)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """Sends nothing more; how many have no answer."""
        self._ended.set()
        self._thread.join()
        left: int = self._producer.flush(FLUSH_SECONDS_MAX)
        self._file.close()
        return left

    def pause_after(self, moment: float) -> float:
        """The longest time in seconds without an acknowledgement, since a moment."""
        with self._lock:
            later = [moment, *(at for at in self._acknowledged_at if at > moment)]
        return max((b - a for a, b in pairwise(later)), default=0.0)

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            for _ in range(AT_A_TIME):
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        self.sent += 1
        customer = CUSTOMERS[self.sent % len(CUSTOMERS)]
        order = {"order_id": self.sent, "customer": customer, "amount": self.sent % 700 / 10}
        value = json.dumps(order).encode()
        if self.sent % POISON_EVERY == 0:
            self.poison += 1
            value = POISON
        checksum = zlib.crc32(value)

        def answered(error: Any, message: Any) -> None:
            with self._lock:
                if error is not None:
                    self.failed += 1
                    return
                place = (self._topic, message.partition(), message.offset(), checksum)
                self._ledger.writerow(place)
                self._acknowledged_at.append(time.monotonic())

        self._producer.produce(self._topic, value, customer.encode(), on_delivery=answered)
