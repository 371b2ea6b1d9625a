"""A well-behaved client beside an attack: what it, the broker's memory and its descriptors must not
notice, and how many descriptors there may be."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from support.brokers import one_batch
from support.servers import TidelogServer
from support.stopwatch import Stopwatch
from support.wire_client import (
    METADATA,
    WireClient,
    descriptors,
    forget_peak,
    memory_bytes,
    peak_memory_bytes,
    wait_until,
)
from tidelog.records.reference import read_records

MIB = 1 << 20
GROWTH_MAX = 64 * MIB
LATENCY_SECONDS_MAX = 2.0
"""Mostly it is a hundredth of this."""
DESCRIPTORS_ENOUGH = 16_384

SETTINGS = {"auto.create.topics.enable": "false", "socket.listen.backlog.size": "1024"}
"""With the usual backlog of 50, the system itself makes bursts of connections wait a second."""


def check_log(server: TidelogServer) -> None:
    """No attack may look like a bug of the broker."""
    text = server.output.read_text()
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]
    assert " bug " not in text


class Witness:
    """A client that produces, reads back, and notes how long each round took: time in which there
    was no processor for it or the broker left out."""

    def __init__(self, server: TidelogServer) -> None:
        self._client = WireClient(server.address)
        self._process_id = server.process_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0
        self.seconds: list[float] = []
        self.failure: BaseException | None = None

    def _run(self) -> None:
        try:
            stopwatch = Stopwatch([self._process_id])
            while not self._is_over.is_set():
                began = stopwatch.seconds()
                self._one_round(f"witness {self.rounds}")
                self.seconds.append(stopwatch.seconds() - began)
                self.rounds += 1
                sleep(0.005)
        except BaseException as error:
            self.failure = error

    def _one_round(self, text: str) -> None:
        produced = self._client.produce("witness", one_batch(text))
        assert produced.error_code.name == "none"
        stored = self._client.fetch("witness", produced.base_offset)
        assert stored.high_watermark > produced.base_offset
        assert next(iter(read_records(stored.records))).value == text.encode()

    def percentile_99(self, first: int) -> float:
        """Of how long rounds took, from one of them on."""
        seconds = sorted(self.seconds[first:])
        return seconds[len(seconds) * 99 // 100]

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        self._client.close()


@contextmanager
def witnessed(server: TidelogServer, *, growth_max: int = GROWTH_MAX) -> Iterator[Witness]:
    """What happens inside must leave another client, the broker's memory and its descriptors
    as they were."""
    process_id = server.process_id
    base = descriptors(process_id)
    forget_peak(process_id)
    before = memory_bytes(process_id)
    with Witness(server) as witness:
        assert wait_until(lambda: witness.rounds > 3 or witness.failure is not None)
        yield witness
        rounds = witness.rounds
        assert wait_until(lambda: witness.rounds > rounds + 3 or witness.failure is not None)
    assert witness.failure is None, witness.failure
    assert max(witness.seconds) < LATENCY_SECONDS_MAX
    assert peak_memory_bytes(process_id) - before < growth_max
    # The lanes beside the loop may have opened files of their own by now.
    assert wait_until(lambda: descriptors(process_id) <= base + 8), descriptors(process_id)
    with WireClient(server.address) as client:
        client.ask(METADATA, 12, topics=[], include_topic_authorized_operations=False)


def plain_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


@contextmanager
def many_descriptors() -> Iterator[int]:
    """As many as the system lets this process and the servers that it starts have, and how many
    that is. A test that needs more makes do with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = (
        DESCRIPTORS_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_ENOUGH)
    )
    allowed = max(allowed, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    try:
        yield allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
