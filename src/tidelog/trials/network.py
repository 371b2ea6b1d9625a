"""Simulated messages: requests and answers as plain objects, over connections that break.

A `Channel` is how one host asks another: within a connection everything stays in order; when it
breaks, who asked is told so, requests that were under way may or may not arrive still, late
and after those of the next connection, and their answers never do. A link that is cut holds
everything, in the direction in which it is cut, until it is mended or who waits gives up.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tidelog.trials.hosts import HostLoop
from tidelog.trials.options import Options
from tidelog.trials.turning import TrialLoop

Link = tuple[int, int]
"""From one host to another."""
Reply = Callable[[Any], None]
Done = Callable[[Any | None], None]
"""With None when no answer came."""


class Peer(Protocol):
    """A host as the network sees it."""

    number: int
    loop: HostLoop

    def receive(self, request: Any, reply: Reply) -> bool:
        """False if nothing listens there."""


class Network:
    def __init__(self, loop: TrialLoop, options: Options) -> None:
        self.loop = loop
        self.options = options
        self.peers: dict[int, Peer] = {}
        self.channels: list[Channel] = []
        self.slow: dict[Link, int] = {}
        """Links that take longer by so many milliseconds."""
        self.cuts: dict[Link, int] = {}
        """How often each link is cut; those that are not are not here."""
        self._held: dict[Link, deque[Callable[[], None]]] = {}
        self._delays = options.delay_ms_max + 1
        self._random = loop.choices.stream("network").random

    def cut(self, sender: int, receiver: int) -> None:
        link = (sender, receiver)
        self.cuts[link] = self.cuts.get(link, 0) + 1

    def mend(self, sender: int, receiver: int) -> None:
        link = (sender, receiver)
        count = self.cuts.pop(link, 0) - 1
        if count > 0:
            self.cuts[link] = count
        else:
            for event in self._held.pop(link, ()):
                self.loop.after(0, event)

    def mend_all(self) -> None:
        for link in list(self.cuts):
            self.cuts[link] = 1
            self.mend(*link)
        self.slow.clear()

    def transmit(self, link: Link, not_before_ms: int, event: Callable[[], None]) -> int:
        """Carries something over a link; gives when it arrives."""
        now_ms = self.loop.now_ms
        delay_ms = int(self._random() * self._delays)
        if self.slow:
            delay_ms += self.slow.get(link, 0)
        if now_ms + delay_ms < not_before_ms:
            delay_ms = not_before_ms - now_ms
        self.loop.after(delay_ms, event)
        return now_ms + delay_ms

    def hold(self, link: Link, event: Callable[[], None]) -> None:
        """Until the link, which is cut, is mended."""
        self._held.setdefault(link, deque()).append(event)

    def chance(self) -> float:
        return self._random()

    def drop(self, number: int) -> None:
        """A process has died: the connections to it are gone at once."""
        for channel in self.channels:
            if channel.receiver == number and channel.is_in_use:
                channel.break_off()

    def forget(self, sender: Peer) -> None:
        """Who has died asks nobody any more."""
        self.channels = [channel for channel in self.channels if channel.sender is not sender]

    def break_link(self, one: int, other: int) -> bool:
        """Whether there was a connection in use to break."""
        found = False
        for channel in self.channels:
            if {channel.sender.number, channel.receiver} == {one, other} and channel.is_in_use:
                channel.break_off()
                found = True
        return found


class Call:
    __slots__ = ("asked_ms", "done", "is_served", "request")

    def __init__(self, request: Any, done: Done, asked_ms: int) -> None:
        self.request = request
        self.done = done
        self.asked_ms = asked_ms
        self.is_served = False


class Channel:
    """Asks `receiver`; answers come in the order of the questions, and none from a connection
    that is not the one that is open now (D6)."""

    __slots__ = (
        "_arrives_ms",
        "_back",
        "_calls",
        "_generation",
        "_is_watched",
        "_network",
        "_returns_ms",
        "_there",
        "receiver",
        "sender",
    )

    def __init__(self, network: Network, sender: Peer, receiver: int) -> None:
        self._network = network
        self.sender = sender
        self.receiver = receiver
        self._there = (sender.number, receiver)
        self._back = (receiver, sender.number)
        self._calls: deque[Call] = deque()
        self._generation = 0
        self._arrives_ms = 0
        self._returns_ms = 0
        self._is_watched = False
        network.channels.append(self)

    @property
    def is_in_use(self) -> bool:
        return bool(self._calls)

    def call(self, request: Any, done: Done) -> None:
        network = self._network
        call = Call(request, done, network.loop.now_ms)
        self._calls.append(call)
        event = partial(self._arrived, call, self._generation)
        self._arrives_ms = network.transmit(self._there, self._arrives_ms, event)
        if not self._is_watched:
            self._watch(network.options.request_timeout_ms)

    def break_off(self) -> None:
        """The connection is gone: nobody who waits gets an answer."""
        self._generation += 1
        self._arrives_ms = self._returns_ms = 0
        calls, self._calls = self._calls, deque()
        for call in calls:
            if self._network.chance() >= self._network.options.late_requests:
                call.is_served = True
            self.sender.loop.run_event(partial(call.done, None))

    def _arrived(self, call: Call, generation: int) -> None:
        network = self._network
        if network.cuts and self._there in network.cuts:
            network.hold(self._there, partial(self._arrived, call, generation))
            return
        if call.is_served:
            return
        call.is_served = True
        peer = network.peers[self.receiver]
        loop = peer.loop
        if loop.is_paused:
            loop.run_event(partial(self._serve, peer, call, generation))
        elif not loop.is_dead:
            self._serve(peer, call, generation)
        if loop.is_dead and generation == self._generation:
            self.break_off()

    def _serve(self, peer: Peer, call: Call, generation: int) -> None:
        reply = partial(self._reply, call, generation)
        if not peer.receive(call.request, reply) and generation == self._generation:
            self.break_off()

    def _reply(self, call: Call, generation: int, answer: Any) -> None:
        if generation == self._generation:
            event = partial(self._returned, call, generation, answer)
            self._returns_ms = self._network.transmit(self._back, self._returns_ms, event)

    def _returned(self, call: Call, generation: int, answer: Any) -> None:
        network = self._network
        if network.cuts and self._back in network.cuts:
            network.hold(self._back, partial(self._returned, call, generation, answer))
            return
        if generation != self._generation:
            return
        calls = self._calls
        if calls[0] is call:
            calls.popleft()
        else:
            calls.remove(call)
        loop = self.sender.loop
        if loop.is_paused:
            loop.run_event(partial(call.done, answer))
        elif not loop.is_dead:
            call.done(answer)

    def _watch(self, delay_ms: int) -> None:
        self._is_watched = True
        self._network.loop.after(delay_ms, self._look)

    def _look(self) -> None:
        """Gives up on a connection over which the oldest question waits for too long."""
        self._is_watched = False
        if not self._calls:
            return
        network = self._network
        waited_ms = network.loop.now_ms - self._calls[0].asked_ms
        if waited_ms >= network.options.request_timeout_ms:
            self.break_off()
        else:
            self._watch(network.options.request_timeout_ms - waited_ms)
