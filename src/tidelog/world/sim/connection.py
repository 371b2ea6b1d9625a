"""One end of a simulated connection, between its receiver and two pipes.

It does what a real one does, with less luck: reads end anywhere, sends are taken in part,
and file ranges are read as late as they may be.
"""

import errno
from collections import deque
from collections.abc import Iterator
from os import strerror
from random import Random

from tidelog.base.ports import Buffer, File, Receiver
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.pipe import Pages, Part, Pipe

OURS = "closed by this side"
THEIRS = "closed by the peer"
Queued = memoryview | Pages
RESET = strerror(errno.ECONNRESET)


class SimConnection:
    def __init__(self, loop: SimLoop, incoming: Pipe, outgoing: Pipe, peer: str) -> None:
        self.peer = peer
        self.queued_bytes = 0
        self.is_silent = False
        """While its machine is gone, nobody answers: not even with a reset."""
        self._loop = loop
        self._draws: Random = loop.choices.stream("splits")
        self._incoming = incoming
        self._outgoing = outgoing
        self._receiver: Receiver | None = None
        self._queue: deque[Queued] = deque()
        self._is_closing = False
        self.is_closed = False
        self._is_paused = False
        self._is_waiting = False
        self._is_read_planned = False
        incoming.arrived = self._arrived

    # The port.

    def send(self, data: Buffer) -> None:
        self._enqueue(memoryview(data).cast("B"), memoryview(data).nbytes)

    def send_file(self, file: File, position: int, size: int) -> None:
        self._enqueue(Pages(file=file, position=position, size=size), size)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._plan_read()

    def close(self) -> None:
        if not self._is_closing and not self.is_closed:
            self._is_closing = True
            self._loop.flushes.append(self)

    def abort(self) -> None:
        if not self.is_closed:
            self._outgoing.drop()
            self._outgoing.put("reset")
            self.abandon(OURS)

    def queued_ranges(self) -> Iterator[tuple[File, int, int]]:
        """File, position and size of what is still to be sent from files."""
        for part in self._queue:
            if isinstance(part, Pages):
                yield part.file, part.position, part.size

    # What the network and the loop call.

    def open(self, receiver: Receiver | None) -> None:
        self._receiver = receiver
        if receiver is None:
            self._outgoing.put("end")
            self.abandon("refused")
        else:
            self._plan_read()

    def abandon(self, why: str) -> None:
        """Closes this end at once; the other one has to be told apart from this."""
        if self.is_closed:
            return
        self._forget_all()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            try:
                receiver.closed(why)
            except Exception as error:
                self._loop.on_error(f"{self.peer}: after the connection closed ({why})", error)

    def reset(self) -> None:
        """Both ends are told that the connection is gone; what was on its way is lost."""
        self._outgoing.drop()
        self._outgoing.put("reset")
        self.abandon(RESET)

    def die(self) -> None:
        """Its process is gone: the system closes for it, and no receiver hears of it."""
        self._receiver = None
        self._outgoing.detach()
        if self.is_closed:
            return
        self._outgoing.put("reset" if self._incoming.unread else "end")
        self._forget_all()

    def vanish(self) -> None:
        """Its machine is gone, and says nothing."""
        self._receiver = None
        self.is_silent = True
        self._outgoing.drop()
        self._forget_all()

    def flush(self) -> None:
        if self.is_closed:
            return
        try:
            self._fill()
        except OSError as error:
            self._loop.on_error(f"{self.peer}: closed, a file could not be sent", error)
            self._outgoing.put("end")
            self.abandon(error.strerror or str(error))
            return
        if self._is_closing:
            self._outgoing.put("end")
            self._incoming.unread.clear()
            self._incoming.make_room(self._outgoing.link)
            self.abandon(OURS)
        elif self._queue:
            self._wait_for_room()
        elif self._is_waiting:
            self._is_waiting = False
            self._plan_read()

    # Input.

    def _arrived(self, part: Part) -> None:
        if part == "reset":
            self._incoming.drop()
            self.abandon(RESET)
        elif self.is_closed:
            if part != "end" and not self.is_silent:
                self._outgoing.drop()
                self._outgoing.put("reset")
        elif part == "end":
            self._incoming.has_ended = True
            self._plan_read()
        else:
            self._take(part)

    def _take(self, part: Part) -> None:
        assert isinstance(part, bytes | Pages)
        try:
            self._incoming.unread += part.read() if isinstance(part, Pages) else part
        except OSError as error:
            # The sending machine could not read its own file.
            self._loop.on_error(f"{self.peer}: closed, a file could not be sent", error)
            self._incoming.has_ended = True
        self._plan_read()

    def _plan_read(self) -> None:
        if self._is_readable() and not self._is_read_planned:
            self._is_read_planned = True
            self._loop.after(0, self._read)

    def _is_readable(self) -> bool:
        if self.is_closed or self._is_closing or self._is_paused or self._is_waiting:
            return False
        has_input = bool(self._incoming.unread) or self._incoming.has_ended
        return has_input and self._receiver is not None

    def _read(self) -> None:
        self._is_read_planned = False
        if not self._is_readable():
            return
        assert self._receiver is not None
        if not self._incoming.unread:
            self._outgoing.put("end")
            self.abandon(THEIRS)
            return
        try:
            self._receive(self._receiver)
        except Exception as error:
            self._loop.on_error(f"{self.peer}: closed, its input could not be handled", error)
            self._outgoing.put("end")
            self.abandon(str(error) or type(error).__name__)
        self._plan_read()

    def _receive(self, receiver: Receiver) -> None:
        unread = self._incoming.unread
        room = receiver.buffer()
        assert len(room), "a receiver must have room for what comes"
        size = self._some(min(len(unread), len(room)))
        room[:size] = unread[:size]
        del room
        del unread[:size]
        self._incoming.make_room(self._outgoing.link)
        receiver.received(size)

    # Output.

    def _enqueue(self, part: Queued, size: int) -> None:
        if self.is_closed or self._is_closing or size == 0:
            return
        if not self._queue:
            self._loop.flushes.append(self)
        self._queue.append(part)
        self.queued_bytes += size

    def _fill(self) -> None:
        """Puts into the pipe what it takes, or by chance a little less."""
        room = self._outgoing.room
        allowance = room if self._is_closing or not room else self._some(room)
        while self._queue and allowance:
            head = self._queue.popleft()
            part, rest = _split(head, allowance)
            if rest is not None:
                self._queue.appendleft(rest)
            size = part.size if isinstance(part, Pages) else len(part)
            self.queued_bytes -= size
            allowance -= size
            self._outgoing.put(part)

    def _wait_for_room(self) -> None:
        self._is_waiting = True
        if self._outgoing.room:
            self._loop.after(1, self.flush)
        else:
            self._outgoing.wanted = self.flush

    def _some(self, size: int) -> int:
        return size if self._draws.random() < 0.5 else self._draws.randint(1, size)

    def _forget_all(self) -> None:
        self.is_closed = True
        self._queue.clear()
        self.queued_bytes = 0


def _split(part: Queued, size: int) -> tuple[bytes | Pages, Queued | None]:
    """The first bytes of a part, at most so many, and the rest of it."""
    if isinstance(part, memoryview):
        return bytes(part[:size]), part[size:] if len(part) > size else None
    first = min(part.size, size)
    if part.file.size() < part.position + first:
        raise OSError(errno.ENODATA, "the file ended before the range that was to be sent")
    sent = Pages(file=part.file, position=part.position, size=first)
    if first == part.size:
        return sent, None
    position, left = part.position + first, part.size - first
    return sent, Pages(file=part.file, position=position, size=left)
