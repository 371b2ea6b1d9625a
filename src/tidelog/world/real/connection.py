"""One connection of the real network: what is queued for it, and how that leaves.

`send` queues and asks the loop for a flush at the end of the turn. A flush joins small
answers into one `send`, hands larger ones to `sendmsg`, and gives file ranges to
`sendfile`, so that their bytes never enter this process. If the socket takes no more, the
connection waits until it can be written, and is not read until all has left.
"""

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Any

from tidelog.base.limits import RECEIVED_BYTES_MAX
from tidelog.base.ports import Buffer, File, Receiver
from tidelog.world.real.disk import RealFile
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.sockets import describe_error

JOINED_BYTES_MAX = 65_536
"""Up to here one copy is cheaper than describing the parts to the system."""
SENDFILE_BYTES_MAX = 1_048_576
TURN_BYTES_MAX = 4_194_304
"""What one connection may send in a turn, so that a fast reader does not keep the loop."""
BULK_BYTES_MIN = 524_288
"""Whoever takes as much is not waited for awake."""
PARTS_MAX = 1_024
WAKE_BYTES_MAX = 524_288
_DRAIN_STEP = 65_536
_DRAIN_STEPS_MAX = 16
_OURS = "closed by this side"
_NO_LINGER = Struct("ii").pack(1, 0)
"""The system forgets what it has not sent, and resets the connection."""

_MORE = int(socket.MSG_MORE)
_OPEN, _CLOSING, _CLOSED = 0, 1, 2


class FileRange:
    __slots__ = ("file", "position", "size")

    def __init__(self, file: RealFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size


class RealConnection:
    __slots__ = (
        "_descriptor",
        "_is_paused",
        "_is_read",
        "_is_waiting",
        "_loop",
        "_open_ones",
        "_queue",
        "_range_count",
        "_receiver",
        "_recv_into",
        "_send",
        "_socket",
        "_state",
        "_wake_bytes",
        "peer",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: EpollLoop,
        connected: socket.socket,
        peer: str,
        open_ones: "set[RealConnection]",
    ) -> None:
        self.peer = peer
        self.queued_bytes = 0
        self._loop = loop
        self._open_ones = open_ones
        open_ones.add(self)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._recv_into = connected.recv_into
        self._send = connected.send
        self._receiver: Receiver | None = None
        self._queue: deque[Any] = deque()
        self._range_count = 0
        self._state = _OPEN
        self._is_paused = False
        self._is_read = False
        self._is_waiting = False
        self._wake_bytes = 1

    # The port.

    def send(self, data: Buffer) -> None:
        if self._state != _OPEN:
            return
        size = len(data)
        if type(data) is memoryview:
            size = data.nbytes
            data = data.cast("B")
        if size == 0:
            return
        queue = self._queue
        if not queue:
            self._loop.flushes.append(self)
        queue.append(data)
        self.queued_bytes += size

    def send_file(self, file: File, position: int, size: int) -> None:
        assert isinstance(file, RealFile), f"{file!r} is not a file of this machine"
        if self._state != _OPEN or size == 0:
            return
        if not self._queue:
            self._loop.flushes.append(self)
        self._queue.append(FileRange(file, position, size))
        self._range_count += 1
        self.queued_bytes += size

    def pause(self) -> None:
        """The descriptor stays watched until something comes: most pauses end before."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        if not self._is_read and not self._is_waiting and self._state != _CLOSED:
            self._watch_input()

    def close(self) -> None:
        if self._state == _OPEN:
            self._state = _CLOSING
            self._loop.flushes.append(self)

    def abort(self) -> None:
        if self._state != _CLOSED:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.abandon(_OURS)

    def queued_ranges(self) -> Iterator[tuple[File, int, int]]:
        """File, position and size of what is still to be sent from files: pages that must
        not be cut or written again before they have left."""
        for part in self._queue:
            if isinstance(part, FileRange):
                yield part.file, part.position, part.size

    # What the network and the loop call.

    def open(self, receiver: Receiver | None) -> None:
        """Begins to receive; without a receiver the connection was refused."""
        self._receiver = receiver
        if receiver is None:
            self.abandon("refused")
        elif self._state == _OPEN:
            self._watch_input()

    def abandon(self, why: str) -> None:
        """Closes at once, whatever is queued."""
        if self._state == _CLOSED:
            return
        self._state = _CLOSED
        self._open_ones.discard(self)
        self._loop.unwatch(self._descriptor)
        self._socket.close()
        self._queue.clear()
        self._range_count = self.queued_bytes = 0
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            try:
                receiver.closed(why)
            except Exception as error:
                self._loop.on_error(f"{self.peer}: after the connection closed ({why})", error)

    def flush(self) -> None:
        """Sends what is queued. What the socket does not take, or is more than the share of
        one turn, waits until the socket can be written again."""
        if self._state == _CLOSED:
            return
        try:
            if self._range_count or self.queued_bytes > JOINED_BYTES_MAX:
                self._flush_large()
            elif self._queue:
                self._flush_small()
        except BlockingIOError:
            self._wait_for_output()
        except OSError as error:
            self._lose(error)
            return
        if self._state == _CLOSING:
            self._finish_closing()
        elif self._queue:
            self._wait_for_output()
        elif self._is_waiting:
            self._is_waiting = False
            self._watch_input()

    # Input.

    def _watch_input(self) -> None:
        self._loop.watch(self._descriptor, select.EPOLLIN, self._readable)
        self._is_read = True

    def _readable(self, _events: int) -> None:
        receiver = self._receiver
        if self._is_paused or receiver is None:
            self._ignore_input()
            return
        try:
            # A full buffer means that more is waiting, most likely: this saves a turn.
            if self._receive(receiver) and not self._queue and not self._is_paused:
                self._receive(receiver)
        except Exception as error:
            self._fail(error)

    def _receive(self, receiver: Receiver) -> bool:
        """Whether the buffer was filled, and the connection is still open."""
        room = receiver.buffer()
        try:
            size = self._recv_into(room)
        except BlockingIOError:
            return False
        except OSError as error:
            self.abandon(describe_error(error))
            return False
        is_full = size == len(room)
        if len(room) > RECEIVED_BYTES_MAX or self._wake_bytes > 1:
            self._wake_at(len(room) - size)
        # Whoever owns the buffer may want to resize it now.
        del room
        if size == 0:
            assert not is_full, "a receiver must have room for what comes"
            self.abandon("closed by the peer")
            return False
        receiver.received(size)
        return is_full and self._state == _OPEN

    def _wake_at(self, missing: int) -> None:
        """While a large frame comes in, lets the system collect a good part of it before it
        wakes the loop again."""
        wanted = min(missing, WAKE_BYTES_MAX) if missing > RECEIVED_BYTES_MAX else 1
        if wanted != self._wake_bytes:
            self._wake_bytes = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def _fail(self, error: Exception) -> None:
        self._loop.on_error(f"{self.peer}: closed, its input could not be handled", error)
        self.abandon(str(error) or type(error).__name__)

    def _ignore_input(self) -> None:
        """Only a connection that broke is told of from now on."""
        self._is_read = False
        self._loop.watch(self._descriptor, 0, self._broken)

    def _broken(self, _events: int) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.abandon(os.strerror(number) if number else "closed by the peer")

    # Output.

    def _wait_for_output(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._is_read = False
            self._loop.watch(self._descriptor, select.EPOLLOUT, self._writable)

    def _writable(self, _events: int) -> None:
        self.flush()

    def _flush_small(self) -> None:
        queue = self._queue
        data = queue[0] if len(queue) == 1 else b"".join(queue)
        sent = self._send(data)
        queue.clear()
        self.queued_bytes -= sent
        if self.queued_bytes:
            queue.append(memoryview(data)[sent:])

    def _flush_large(self) -> None:
        queue = self._queue
        allowance = TURN_BYTES_MAX
        if self.queued_bytes >= BULK_BYTES_MIN:
            self._loop.expect_nothing()
        while queue and allowance > 0:
            head = queue[0]
            if type(head) is FileRange:
                allowance -= self._send_range(head)
            elif len(queue) == 1 or type(queue[1]) is FileRange:
                allowance -= self._send_part(head, 0 if len(queue) == 1 else _MORE)
            else:
                allowance -= self._send_parts()

    def _send_range(self, head: FileRange) -> int:
        size = head.size if head.size < SENDFILE_BYTES_MAX else SENDFILE_BYTES_MAX
        sent = os.sendfile(self._descriptor, head.file.fileno(), head.position, size)
        if sent == 0:
            raise OSError(errno.ENODATA, "the file ended before the range that was to be sent")
        head.position += sent
        head.size -= sent
        self.queued_bytes -= sent
        if head.size == 0:
            self._queue.popleft()
            self._range_count -= 1
        return sent

    def _send_part(self, head: Buffer, flags: int) -> int:
        sent = self._send(head, flags)
        if sent == len(head):
            self._queue.popleft()
            self.queued_bytes -= sent
        else:
            self._forget(sent)
        return sent

    def _send_parts(self) -> int:
        """The bytes up to the next file range, which go into the same packet as its first."""
        parts: list[Buffer] = []
        size = flags = 0
        for part in self._queue:
            if type(part) is FileRange:
                flags = _MORE
                break
            if len(parts) == PARTS_MAX or size >= TURN_BYTES_MAX:
                break
            parts.append(part)
            size += len(part)
        sent = self._socket.sendmsg(parts, (), flags)
        self._forget(sent)
        return sent

    def _forget(self, sent: int) -> None:
        queue = self._queue
        self.queued_bytes -= sent
        while sent:
            head = queue[0]
            if len(head) > sent:
                queue[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            queue.popleft()

    def _lose(self, error: OSError) -> None:
        """A peer that went away is nothing special; a disk that fails is."""
        if error.errno in (errno.EIO, errno.EBADF, errno.ENODATA):
            self._loop.on_error(f"{self.peer}: closed, a file could not be sent", error)
        self.abandon(describe_error(error))

    def _finish_closing(self) -> None:
        """Input that nobody has read would make the system reset the connection, and what
        was sent last could be lost with it."""
        scratch = bytearray(_DRAIN_STEP)
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_DRAIN_STEPS_MAX):
                if not self._recv_into(scratch):
                    break
        except OSError as error:
            self.abandon(_OURS if isinstance(error, BlockingIOError) else describe_error(error))
            return
        self.abandon(_OURS)
