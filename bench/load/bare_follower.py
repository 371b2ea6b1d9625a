"""The least that a follower in Python can do, to measure followers by: receive, check, write.

`python -m bench.load.bare_follower PORT FILE PIECE_BATCHES THREADS` fetches once all that the bare
server of fetches at that port has, checks the CRC-32C of every batch, writes them to a file, and
prints how many megabytes a second that were, and how many seconds of CPU a GB took. The next answer
is asked for before the last piece of one is written, so that the server sends meanwhile: a follower
that tells its leader what it has may not do that. Pieces of so many batches are received into the
same few buffers. With two threads the second one writes.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue

from crc32c import crc32c

from bench.load.bare_servers import ENDING, FETCH_BYTES, FETCHED_FILE, TOPIC, answer_start, shape
from bench.load.fields import int64, varint
from bench.load.frames import FETCH, fetch
from bench.load.target import CLIENTS

BUFFERS = 3
_BATCH_CRC = 17
_CRC_FROM = 21

Write = Callable[[memoryview, int], None]


class Pieces:
    """The batches of all answers, as they come."""

    def __init__(self, connection: socket.socket, piece_batches: int) -> None:
        self._connection = connection
        self._frame = fetch(TOPIC, 1, FETCH_BYTES, CLIENTS["java"][FETCH])
        self.batch_bytes, self._batch_records = shape()
        self._answer_batches = FETCH_BYTES // self.batch_bytes
        self._answers = FETCHED_FILE // self.batch_bytes // self._answer_batches - 1
        self.bytes = self._answers * self._answer_batches * self.batch_bytes
        self._piece_bytes = piece_batches * self.batch_bytes
        self._free: SimpleQueue[memoryview] = SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(memoryview(bytearray(self._piece_bytes)))

    def receive(self) -> Iterator[memoryview]:
        """Each is to be given back, whole."""
        head = 8 + len(answer_start(0)) + len(varint(FETCH_BYTES + 1))
        whole = self._answer_batches * self.batch_bytes
        between = memoryview(bytearray(max(head, FETCH_BYTES - whole + len(ENDING))))
        self._ask(0)
        for number in range(self._answers):
            self._fill(between[:head])
            for at in range(0, whole, self._piece_bytes):
                piece = self._free.get()[: whole - at]
                self._fill(piece)
                if at + len(piece) == whole:
                    self._fill(between[: FETCH_BYTES - whole + len(ENDING)])
                    if number + 1 < self._answers:
                        self._ask(number + 1)
                yield piece

    def give_back(self, piece: memoryview) -> None:
        assert isinstance(piece.obj, bytearray)
        self._free.put(memoryview(piece.obj))

    def check(self, piece: memoryview) -> None:
        for at in range(0, len(piece), self.batch_bytes):
            stored = int.from_bytes(piece[at + _BATCH_CRC : at + _CRC_FROM])
            body = piece[at + _CRC_FROM : at + self.batch_bytes]
            assert crc32c(body) == stored, "the CRC does not match"

    def _ask(self, number: int) -> None:
        frame, at = bytearray(self._frame.data), self._frame.offset_at
        frame[at : at + 8] = int64(number * self._answer_batches * self._batch_records)
        self._connection.sendall(frame)

    def _fill(self, room: memoryview) -> None:
        while room:
            size = self._connection.recv_into(room, len(room), socket.MSG_WAITALL)
            assert size, "the server has gone"
            room = room[size:]


@contextmanager
def writing(pieces: Pieces, descriptor: int, threads: int) -> Iterator[Write]:
    """Where to put pieces; at its end all of them are written."""

    def write(piece: memoryview, position: int) -> None:
        os.pwrite(descriptor, piece, position)
        pieces.give_back(piece)

    if threads == 1:
        yield write
        return
    queue: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()

    def write_all() -> None:
        while (item := queue.get()) is not None:
            write(*item)

    thread = threading.Thread(target=write_all)
    thread.start()
    yield lambda piece, position: queue.put((piece, position))
    queue.put(None)
    thread.join()


def follow(port: int, path: str, piece_batches: int, threads: int) -> tuple[float, float]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces = Pieces(connection, piece_batches)
        began, spent, position = time.monotonic(), time.process_time(), 0
        with writing(pieces, descriptor, threads) as write:
            for piece in pieces.receive():
                pieces.check(piece)
                size = len(piece)
                write(piece, position)
                position += size
        took, spent = time.monotonic() - began, time.process_time() - spent
    os.close(descriptor)
    assert position == pieces.bytes
    return position / 1e6 / took, spent / position * 1e9


def main(port: str, path: str, piece_batches: str, threads: str) -> None:
    print(*follow(int(port), path, int(piece_batches), int(threads)))


if __name__ == "__main__":
    main(*sys.argv[1:])
