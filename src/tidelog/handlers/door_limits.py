"""How many connections are let in: from one address, in a second, and beside the broker's files.

`max.connections.per.ip.overrides` may name hosts, as Kafka's does: their addresses are looked up
beside the loop, once for each text of the setting.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from tidelog.base.ports import Clock, Loop
from tidelog.base.settings import Settings
from tidelog.base.settings.kinds import INT_MAX

HELD_MS_MAX: Final = 10_000
"""How long a connection may have to wait for its turn; one that would wait longer is refused."""
_BURST_US: Final = 1_000_000
KEPT_FOR_FILES_MAX: Final = 4_096
"""Descriptors that connections leave to files, if there are as many."""

_log = logging.getLogger("tidelog.connection")

Addresses = dict[str, tuple[str, ...]]


def has_room(connections: int, opened: int, limit: int) -> bool:
    """Whether files can still be opened beside one more connection: of what they do not have yet a
    quarter is theirs. A log dir in which none can be opened has failed."""
    files = max(0, opened - connections)
    return limit - opened > min(KEPT_FOR_FILES_MAX, (limit - files) // 4)


class AddressLimits:
    def __init__(self, loop: Loop, resolve: Callable[[str], tuple[str, ...]]) -> None:
        self._loop = loop
        self._resolve = resolve
        self._text = ""
        self._limits: dict[str, int] = {}

    def limit(self, settings: Settings, address: str) -> int:
        self.refresh(settings)
        return self._limits.get(address, settings.whole("max.connections.per.ip"))

    def refresh(self, settings: Settings) -> None:
        """Begins to look up what is new; until that is known, hosts have no limits of their own."""
        text = settings.text("max.connections.per.ip.overrides")
        if text != self._text:
            self._text = text
            self._limits = _read(text)
            hosts = list(self._limits)
            done = partial(self._resolved, text)
            self._loop.offload("resolve", partial(self._look_up, hosts), done)

    def _look_up(self, hosts: Iterable[str]) -> Addresses:
        found: Addresses = {}
        for host in hosts:
            try:
                found[host] = self._resolve(host)
            except OSError as error:
                _log.warning("unknown host=%s why=%s", host, error)
        return found

    def _resolved(self, text: str, found: Addresses | Exception) -> None:
        if isinstance(found, Exception):
            raise found
        if text == self._text:
            named = dict(self._limits)
            for host, addresses in found.items():
                self._limits |= dict.fromkeys(addresses, named[host])
            # What an address is given itself counts before what a name gives it.
            self._limits |= named


def _read(text: str) -> dict[str, int]:
    pairs = (item.rpartition(":") for item in text.split(",") if item.strip())
    return {address.strip().strip("[]"): int(limit) for address, _, limit in pairs}


class CreationRate:
    """`max.connection.creation.rate`, of the broker or of one listener: what a second allows may
    come at once, what comes beyond that takes turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken_us = 0
        """Until when, at this rate, turns have been given away."""

    def wait_ms(self, rate: int) -> int:
        """How long one more would have to wait."""
        if rate >= INT_MAX:
            return 0
        if not rate:
            return HELD_MS_MAX + 1
        now_us = self._clock.monotonic_us()
        ahead_us = max(self._taken_us, now_us) + _BURST_US // rate - now_us - _BURST_US
        return max(0, -(-ahead_us // 1000))

    def take(self, rate: int) -> None:
        if 0 < rate < INT_MAX:
            self._taken_us = max(self._taken_us, self._clock.monotonic_us()) + _BURST_US // rate
