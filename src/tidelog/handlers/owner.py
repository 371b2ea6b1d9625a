"""Whoever keeps count of the connections and of what they do, as a connection sees him."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.handlers.api import Api
from tidelog.serving.counters import Counters

if TYPE_CHECKING:
    from tidelog.handlers.connection import ClientConnection


class Owner(Protocol):
    apis: Mapping[int, Api]
    request_bytes_max: int
    owed_bytes: int
    owed_bytes_max: int
    counters: Counters

    def left(self, connection: "ClientConnection") -> None: ...
