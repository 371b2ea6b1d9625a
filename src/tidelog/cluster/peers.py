"""How the controller and the brokers reach one another: the one way out of this folder.

What is behind it is a connection to every broker (`tidelog.peers`), or the messages of a
simulated cluster. A broker reaches itself the same way, so that no message has a shortcut.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tidelog.base.control import ControlRequest
from tidelog.base.errors import KafkaError


class Peers(Protocol):
    def send(
        self, broker_id: int, request: ControlRequest, done: Callable[[Any | KafkaError], None]
    ) -> None:
        """`done` once, later: the response entity, or a KafkaError when it could not be delivered
        or no answer came (then it may or may not have been acted on). Requests to one broker are
        delivered in order, one at a time."""
