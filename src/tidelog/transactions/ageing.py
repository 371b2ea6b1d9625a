"""What time does to transactional ids: transactions that take too long are aborted, ids that nobody
has used for long are forgotten.

Readers of committed records wait for open transactions, so one whose producer is gone must end.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Timer
from tidelog.transactions.state import IDLE, Transaction
from tidelog.transactions.surroundings import TransactionSurroundings

LOOKED_AT_ONCE: Final = 1000
"""So many ids at a time, and no more, keep the loop busy."""
PART_CHARACTERS: Final = 64 * 1024
"""Of ids that are forgotten with one write."""

_log = logging.getLogger("tidelog.transactions")


class Aged(Protocol):
    """The shard whose ids these are."""

    def ongoing(self) -> list[Transaction]: ...

    def ids(self) -> list[str]: ...

    def find(self, transactional_id: str) -> Transaction | None: ...

    def abort_timed_out(self, transaction: Transaction) -> None: ...

    def expire(self, transactional_ids: Sequence[str]) -> None: ...


class Ageing:
    def __init__(self, aged: Aged, around: TransactionSurroundings) -> None:
        self._aged = aged
        self._around = around
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        self._every("transaction.abort.timed.out.transaction.cleanup.interval.ms", self._abort)
        self._every("transaction.remove.expired.transaction.cleanup.interval.ms", self._expire)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, setting: str, then: Callable[[], None]) -> None:
        self._at(
            setting, self._around.settings().whole(setting), partial(self._turn, setting, then)
        )

    def _turn(self, setting: str, then: Callable[[], None]) -> None:
        self._every(setting, then)
        then()

    def _at(self, name: str, delay_ms: int, then: Callable[[], None]) -> None:
        at_ms = self._around.clock.monotonic_ms() + delay_ms
        self._timers[name] = self._around.loop.call_at(at_ms, then)

    def _abort(self) -> None:
        now_ms = self._around.clock.now_ms()
        for transaction in self._aged.ongoing():
            if transaction.has_timed_out(now_ms):
                _log.info("timed out transactional_id=%s", transaction.transactional_id)
                try:
                    self._aged.abort_timed_out(transaction)
                except KafkaError as error:
                    _log.warning("not aborted, later why=%s", error)
                    return

    def _expire(self) -> None:
        self._expire_some(self._aged.ids())

    def _expire_some(self, ids: list[str]) -> None:
        """Those that are not looked at now are looked at in another turn."""
        age_ms = self._around.settings().whole("transactional.id.expiration.ms")
        before_ms = self._around.clock.now_ms() - age_ms
        looked_at, left = ids[:LOOKED_AT_ONCE], ids[LOOKED_AT_ONCE:]
        expired = [each for each in looked_at if self._is_idle_since(each, before_ms)]
        try:
            for part in _parts(expired):
                self._aged.expire(part)
        except KafkaError as error:
            _log.warning("transactional ids not forgotten, later why=%s", error)
            return
        if left:
            self._at("rest", 0, partial(self._expire_some, left))

    def _is_idle_since(self, transactional_id: str, time_ms: int) -> bool:
        found = self._aged.find(transactional_id)
        return found is not None and found.status in IDLE and found.updated_ms <= time_ms


def _parts(ids: Sequence[str]) -> Iterator[list[str]]:
    """What can be written at once, however long the ids are."""
    part: list[str] = []
    size = 0
    for each in ids:
        part.append(each)
        size += len(each)
        if size >= PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part
