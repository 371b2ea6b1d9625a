"""The least that a server in Python can do for bulk data, to measure brokers by.

`python -m bench.load.bare_servers produce FILE` receives requests into one buffer, checks the
CRC-32C of their batch, writes it with `pwrite` and answers; `... fetch FILE` answers fetches with
`sendfile` from a file that it fills with batches first. Both print their port and serve one
connection after the other until they are killed. `... flood FILE` does what `produce` does, for
each connection in a thread and a file of its own, and takes single records too. They understand
only the frames made here.
"""

import os
import socket
import sys
from threading import Thread
from typing import NoReturn

from crc32c import crc32c

from bench.load.fields import EMPTY_ARRAY, NO_TAGS, int16, int32, int64, varint
from bench.load.frames import FETCH, PRODUCE, Frame, Topic, batch, fetch, produce
from bench.load.target import CLIENTS
from tidelog.records.batch import read_header, stamp

TOPIC = Topic(name="bare", topic_id=bytes(range(16)))
FETCH_BYTES = 1 << 20
FETCHED_BATCH = 65_536
FETCHED_FILE = 600_000_000
ENDING = NO_TAGS * 3
_BATCH_CRC = 17
_CRC_FROM = 21


def produced(record_bytes: int, batch_bytes: int = 0) -> Frame:
    return produce(TOPIC, [(0, batch(record_bytes, batch_bytes))], CLIENTS["java"][PRODUCE])


def large() -> Frame:
    return produced(1000, 1_000_000)


def single() -> Frame:
    return produced(100)


def serve_produce(connection: socket.socket, descriptor: int, template: bytes) -> None:
    start = template.index(TOPIC.topic_id) + 16 + 1 + 4 + len(varint(len(template)))
    end = len(template) - len(ENDING)
    one = NO_TAGS + varint(2) + TOPIC.topic_id + varint(2) + int32(0) + int16(0) + int64(0)
    body = one + int64(-1) + int64(0) + EMPTY_ARRAY + b"\0" + NO_TAGS * 2 + int32(0) + NO_TAGS
    answer = bytearray(int32(len(body) + 4) + int32(0) + body)
    buffer = memoryview(bytearray(len(template)))
    filled = position = 0
    while size := connection.recv_into(buffer[filled:]):
        filled += size
        if filled < len(template):
            continue
        filled = 0
        stored = int.from_bytes(buffer[start + _BATCH_CRC : start + _CRC_FROM])
        assert crc32c(buffer[start + _CRC_FROM : end]) == stored, "the CRC does not match"
        position += os.pwrite(descriptor, buffer[start:end], position)
        answer[4:8] = buffer[8:12]
        connection.sendall(answer)


def serve_flood(connection: socket.socket, path: str) -> None:
    """Large requests or single records, as the first one is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.unlink(path)
    length = int.from_bytes(connection.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL))
    frame = next(frame for frame in (large(), single()) if len(frame.data) == 4 + length)
    with connection:
        serve_produce(connection, descriptor, frame.data)
    os.close(descriptor)


def shape() -> tuple[int, int]:
    """Bytes and records of each of the batches that are fetched."""
    data = batch(100, FETCHED_BATCH)
    return len(data), read_header(data).record_count


def fill(descriptor: int) -> None:
    data = bytearray(batch(100, FETCHED_BATCH))
    records = read_header(data).record_count
    for number in range(FETCHED_FILE // len(data)):
        stamp(data, number * records, 0)
        os.pwrite(descriptor, data, number * len(data))


def answer_start(end_offset: int) -> bytes:
    """What an answer has before the size of its records, without its length and correlation."""
    last = int64(end_offset)
    start = NO_TAGS + int32(0) + int16(0) + int32(0) + varint(2) + TOPIC.topic_id + varint(2)
    return start + int32(0) + int16(0) + last + last + int64(0) + b"\0" + int32(-1)


def serve_fetch(connection: socket.socket, descriptor: int) -> None:
    batch_bytes, batch_records = shape()
    end = FETCHED_FILE // batch_bytes * batch_bytes
    frame = fetch(TOPIC, 1, FETCH_BYTES, CLIENTS["java"][FETCH])
    offset_at, request_bytes = frame.offset_at, len(frame.data)
    start = answer_start(end // batch_bytes * batch_records)
    buffer = bytearray(request_bytes)
    while connection.recv_into(buffer):
        position = int.from_bytes(buffer[offset_at : offset_at + 8]) // batch_records * batch_bytes
        size = min(FETCH_BYTES, end - position)
        body = start + varint(size + 1)
        length = int32(4 + len(body) + size + len(ENDING))
        connection.send(length + buffer[8:12] + body, socket.MSG_MORE)
        upto = position + size
        while position < upto:
            position += os.sendfile(connection.fileno(), descriptor, position, upto - position)
        connection.send(ENDING)


def listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    return listener


def accepted(listener: socket.socket) -> socket.socket:
    """The next connection. Nothing is paced, whatever the system does elsewhere: over loopback that
    doubles what a gigabyte costs, in some runs and not in others."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return connection


def main_flood(path: str) -> NoReturn:
    listener, count = listen(), 0
    while True:
        connection = accepted(listener)
        count += 1
        Thread(target=serve_flood, args=(connection, f"{path}.{count}"), daemon=True).start()


def main(kind: str, path: str) -> None:
    if kind == "flood":
        main_flood(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if kind == "fetch":
        fill(descriptor)
    listener = listen()
    while True:
        with accepted(listener) as connection:
            if kind == "fetch":
                serve_fetch(connection, descriptor)
            else:
                serve_produce(connection, descriptor, large().data)
                os.ftruncate(descriptor, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
