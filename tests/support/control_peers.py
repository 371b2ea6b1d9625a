"""Messages between brokers of a simulated cluster: each way takes a seeded time; requests and
answers may be lost, and requests may arrive long after they were given up."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidelog.base.control import ControlRequest
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.world.sim.loop import SimLoop

Handle = Callable[[ControlRequest, Callable[[Any], None]], None]


@dataclass(slots=True, kw_only=True)
class MessageFaults:
    lost: float = 0.0
    """A request or its answer, a message at a time."""
    late: float = 0.0
    """A request arrives after it was given up."""
    delay_ms_max: int = 3
    timeout_ms: int = 300


class Exchange:
    """Who can be reached, by broker id."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.faults = MessageFaults()
        self.reachable: dict[int, Handle] = {}
        self.cut: set[frozenset[int]] = set()
        """Pairs of brokers that do not reach one another."""
        self.log: list[tuple[int, int, ControlRequest]] = []
        """From, to, what: all requests that were acted on or refused."""
        self._draws = loop.choices.stream("control messages")

    def peers(self, broker_id: Callable[[], int], is_alive: Callable[[], bool]) -> "SimPeers":
        return SimPeers(self, broker_id, is_alive)

    def delay_ms(self) -> int:
        return self._draws.randint(0, self.faults.delay_ms_max)

    def is_lost(self) -> bool:
        return self._draws.random() < self.faults.lost

    def is_late(self) -> bool:
        return self._draws.random() < self.faults.late


class SimPeers:
    def __init__(
        self, exchange: Exchange, broker_id: Callable[[], int], is_alive: Callable[[], bool]
    ) -> None:
        self._exchange = exchange
        self._broker_id = broker_id
        self._is_alive = is_alive

    def send(
        self, broker_id: int, request: ControlRequest, done: Callable[[Any | KafkaError], None]
    ) -> None:
        exchange, own_id = self._exchange, self._broker_id()
        answered: list[bool] = []

        def answer(response: Any) -> None:
            if not answered and self._is_alive():
                answered.append(True)
                done(response)

        def give_up() -> None:
            answer(KafkaError(ErrorCode.network_exception, f"broker {broker_id} did not answer"))

        def arrive() -> None:
            handle = exchange.reachable.get(broker_id)
            if handle is not None and frozenset((own_id, broker_id)) not in exchange.cut:
                exchange.log.append((own_id, broker_id, request))
                handle(request, respond)

        def respond(response: Any) -> None:
            if not (own_id != broker_id and exchange.is_lost()):
                exchange.loop.after(exchange.delay_ms(), partial(answer, response))

        is_own = own_id == broker_id
        timeout_ms = exchange.faults.timeout_ms
        delay_ms = 0 if is_own else exchange.delay_ms()
        if not is_own and exchange.is_late():
            delay_ms += timeout_ms
        exchange.loop.after(timeout_ms, give_up)
        if is_own or not exchange.is_lost():
            exchange.loop.after(delay_ms, arrive)
