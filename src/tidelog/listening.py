"""Where a broker listens, and what it tells others of it.

Clients come through the listeners that the settings name. Brokers that are coordinated by
ZooKeeper also talk to one another, over a listener of their own: what they ask may change what is
committed, so it is not served where clients come in. `inter.broker.listener.name` names it;
unset, there is one on a free port of the first listener's host, known to the other brokers alone.
"""

from collections.abc import Callable, Mapping
from errno import EADDRINUSE
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ports import Connection, Network, Receiver
from tidelog.base.ports import Listener as Taken
from tidelog.base.settings import Settings, read_listeners, read_protocol_map
from tidelog.base.settings.listeners import Listener
from tidelog.cluster.image import BrokerInfo

REPLICATION: Final = "REPLICATION"

Accept = Callable[[str, Connection], Receiver | None]


def inter_broker_listener(settings: Settings) -> str | None:
    """Its name; None where there are no other brokers."""
    if settings["zookeeper.connect"] is None:
        return None
    chosen = settings["inter.broker.listener.name"]
    return REPLICATION if chosen is None else str(chosen).upper()


class Listening:
    def __init__(self, settings: Settings, host_name: str) -> None:
        self._settings = settings
        self._host_name = host_name
        self._taken: list[tuple[Listener, Taken]] = []
        self.inter_broker = inter_broker_listener(settings)

    def start(self, network: Network, accept: Accept) -> None:
        for listener in self._wanted():
            try:
                taken = network.listen(listener.host, listener.port, _for(accept, listener.name))
            except OSError as error:
                advice = "stop what uses it, or " if error.errno == EADDRINUSE else ""
                raise BadValue(f"{error.strerror}; {advice}set listeners") from error
            self._taken.append((listener, taken))

    def _wanted(self) -> list[Listener]:
        wanted = list(read_listeners(self._settings.text("listeners")))
        if self.inter_broker is not None and self.inter_broker not in {w.name for w in wanted}:
            wanted.append(Listener(name=self.inter_broker, host=wanted[0].host, port=0))
        return wanted

    @property
    def endpoints(self) -> list[tuple[str, str, int]]:
        """Listener name, host and port of everything that is listened on."""
        return [(listener.name, listener.host, taken.port) for listener, taken in self._taken]

    def advertised(self) -> dict[str, tuple[str, int]]:
        """What others are told, by listener. A port of 0 stands for the one that was taken."""
        text = self._settings["advertised.listeners"]
        told = {at.name: at for at in read_listeners(str(text))} if text is not None else {}
        found: dict[str, tuple[str, int]] = {}
        for listener, taken in self._taken:
            shown = told.get(listener.name, listener)
            if text is None or listener.name in told or listener.name == self.inter_broker:
                host = shown.host or self._host_name
                found[listener.name] = (host, shown.port or taken.port)
        return found

    def protocols(self) -> dict[str, str]:
        known = read_protocol_map(self._settings.text("listener.security.protocol.map"))
        own = {} if self.inter_broker is None else {self.inter_broker: "PLAINTEXT"}
        return own | known

    def broker_info(self, identity: Mapping[str, str]) -> BrokerInfo:
        """What the others are to know of this broker, which may have got its number earlier."""
        rack, broker_id = self._settings["broker.rack"], self._settings.whole("broker.id")
        if broker_id < 0 and "broker.id" in identity:
            broker_id = int(identity["broker.id"])
        return BrokerInfo(
            broker_id=broker_id,
            endpoints=self.advertised(),
            protocols=self.protocols(),
            rack=None if rack is None else str(rack),
        )

    def close(self) -> None:
        for _, taken in self._taken:
            taken.close()


def _for(accept: Accept, name: str) -> Callable[[Connection], Receiver | None]:
    return lambda link: accept(name, link)
