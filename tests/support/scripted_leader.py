"""A leader as fetchers see it, and partitions that follow it: records are numbers in order.

The leader keeps sessions as the protocol has them, checks what a good follower never does
wrong, and parks a fetch that finds nothing until something comes or its time is over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from support.answering import AnsweringBroker, Asked
from tidelog.base.errors import ErrorCode
from tidelog.base.ports import Connection
from tidelog.wire.fetch import FetchAnswer, FetchRequest, read_fetch_request, write_fetch_response
from tidelog.wire.header import API_VERSIONS
from tidelog.wire.leader_tags import FetchTags, tag_fetch_response
from tidelog.world.sim.loop import SimLoop, SimTimer
from tidelog.world.sim.network import SimNetwork

Key = tuple[bytes, int]
PORT = 9092
RECORD = Struct(">q")


@dataclass
class Led:
    """One partition of a leader: all offsets below `end`."""

    end: int = 0
    epoch: int = 1
    error: int = 0
    diverging: tuple[int, int] | None = None
    start: int = 0
    fetched_to: int = -1
    """Where its follower said it is."""


@dataclass
class Session:
    positions: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    """Leader epoch, offset and largest size."""
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)
    epoch: int = 1


@dataclass
class Parked:
    asked: Asked
    fetch: FetchRequest
    session_id: int
    session: Session
    timer: SimTimer | None = None


class ScriptedLeader:
    def __init__(self, network: SimNetwork, host: str, port: int = PORT) -> None:
        self.loop: SimLoop = network.loop
        self.partitions: dict[Key, Led] = {}
        self.sessions: dict[int, Session] = {}
        self.fetches: list[FetchRequest] = []
        self.grants_sessions = True
        self.is_silent = False
        self.refuses_with: list[int] = []
        self.on_fetch: Callable[[FetchRequest], None] = _ignore
        self._parked: dict[Connection, Parked] = {}
        self.parked_most = 0
        self._next_id = 100
        self.broker = AnsweringBroker(network=network.host(host), on_request=self._take)
        self.broker.listen(port)

    def lead(self, *keys: Key, end: int = 0, epoch: int = 1) -> None:
        for key in keys:
            self.partitions[key] = Led(end=end, epoch=epoch)

    def append(self, key: Key, count: int = 1) -> None:
        self.partitions[key].end += count
        self.wake()

    def wake(self) -> None:
        for parked in list(self._parked.values()):
            if any(row[8] for row in self._look(parked)[0]):
                self._finish(parked)

    # -- requests

    def _take(self, asked: Asked) -> None:
        if self.is_silent:
            return
        parked = self._parked.get(asked.connection)
        if asked.header.api_key == API_VERSIONS:
            if parked is not None:
                self._finish(parked)
            asked.answer(b"\x00\x00\x00\x00\x00\x00")
            return
        assert parked is None, "a second fetch beside the first (D6)"
        view = memoryview(asked.frame)
        fetch = read_fetch_request(view, asked.body_at, asked.header.version)
        self.fetches.append(fetch)
        self.on_fetch(fetch)
        if self.refuses_with:
            self._send(asked, 0, self.refuses_with.pop(0), [], {})
            return
        found = self._session_of(fetch)
        if isinstance(found, ErrorCode):
            self._send(asked, 0, int(found), [], {})
        else:
            self._begin(Parked(asked, fetch, *found))

    def _session_of(self, fetch: FetchRequest) -> tuple[int, Session] | ErrorCode:
        if fetch.session_epoch <= 0:
            self.sessions.pop(fetch.session_id, None)
            if fetch.session_epoch < 0 or not self.grants_sessions:
                return 0, Session()
            self._next_id += 1
            session = self.sessions[self._next_id] = Session()
            return self._next_id, session
        known = self.sessions.get(fetch.session_id)
        if known is None:
            return ErrorCode.fetch_session_id_not_found
        if known.epoch != fetch.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        known.epoch += 1
        return fetch.session_id, known

    def _begin(self, parked: Parked) -> None:
        session = parked.session
        for topic, index in parked.fetch.forgotten:
            assert isinstance(topic, bytes)
            assert session.positions.pop((topic, index), None), "it was not in the session"
            session.told.pop((topic, index), None)
        for topic, index, epoch, offset, _last, _start, max_bytes in parked.fetch.partitions:
            assert isinstance(topic, bytes)
            session.positions[topic, index] = (epoch, offset, max_bytes)
            if (topic, index) in self.partitions:
                self.partitions[topic, index].fetched_to = offset
        self._parked[parked.asked.connection] = parked
        self.parked_most = max(self.parked_most, len(self._parked))
        rows, tags = self._look(parked)
        if any(row[8] or row[2] for row in rows) or tags or not parked.fetch.max_wait_ms:
            self._finish(parked)
        else:
            due_ms = self.loop.clock.monotonic_ms() + parked.fetch.max_wait_ms
            parked.timer = self.loop.call_at(due_ms, lambda: self._finish(parked))

    def _look(self, parked: Parked) -> tuple[list[FetchAnswer], dict[int, FetchTags]]:
        rows: list[FetchAnswer] = []
        tags: dict[int, FetchTags] = {}
        room = parked.fetch.max_bytes
        for key, (epoch, offset, max_bytes) in parked.session.positions.items():
            led = self.partitions.get(key)
            code = int(ErrorCode.unknown_topic_id) if led is None else led.error
            if led is None or code or epoch != led.epoch:
                code = code or int(ErrorCode.fenced_leader_epoch)
                rows.append((*key, code, -1, -1, -1, None, -1, 0))
                continue
            size = 0
            if led.diverging is not None and offset > led.diverging[1]:
                tags[len(rows)] = FetchTags(diverging=led.diverging)
            else:
                wanted = min(max_bytes, max(room, 0)) // RECORD.size
                size = max(0, min(led.end - offset, max(wanted, 1))) * RECORD.size
            news = (led.end, led.start)
            if (
                parked.fetch.session_epoch == 0
                or size
                or len(rows) in tags
                or (parked.session.told.get(key) != news)
            ):
                room -= size
                rows.append((*key, 0, led.end, led.end, led.start, None, -1, size))
        return rows, tags

    # -- answers

    def _finish(self, parked: Parked) -> None:
        if self._parked.get(parked.asked.connection) is not parked:
            return
        del self._parked[parked.asked.connection]
        if parked.timer is not None:
            parked.timer.cancel()
        rows, tags = self._look(parked)
        for topic, index, code, end, _, start, _, _, _ in rows:
            if not code and isinstance(topic, bytes):
                parked.session.told[topic, index] = (end, start)
        self._send(parked.asked, parked.session_id, 0, rows, tags, parked.session)

    def _send(
        self,
        asked: Asked,
        session_id: int,
        code: int,
        rows: list[FetchAnswer],
        tags: dict[int, FetchTags],
        session: Session | None = None,
    ) -> None:
        header = asked.header
        pieces = write_fetch_response(header.correlation_id, header.version, session_id, code, rows)
        if tags:
            tag_fetch_response(pieces, header.version, tags)
        out = [pieces[0]]
        for row, piece in zip(rows, pieces[1:], strict=True):
            topic, index = row[0], row[1]
            if row[8] and session is not None and isinstance(topic, bytes):
                offset = session.positions[topic, index][1]
                out += [RECORD.pack(offset + place) for place in range(row[8] // RECORD.size)]
            out.append(piece)
        asked.connection.send(b"".join(out))


def _ignore(_fetch: FetchRequest) -> None:
    """Nothing else is to happen."""


@dataclass(eq=False)
class FollowedLog:
    """A partition that follows: it checks that it is given what comes next."""

    topic_id: bytes
    index: int
    leader_epoch: int = 1
    end: int = 0
    high_watermark: int = -1
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Epoch it was asked under, and error."""
    cuts: list[tuple[int, int]] = field(default_factory=list)
    is_over: bool = False
    is_slow: bool = False
    fails: bool = False
    """At whatever comes in part."""
    parts: list[int] = field(default_factory=list)
    """The sizes of what was there of answers that were still coming."""
    writing: list[bytes] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return self.topic_id, self.index

    def fetch_position(self) -> tuple[int, int, int]:
        assert not self.writing, "it is asked for while it is being written"
        assert not self.is_over, "it is not followed any more"
        return self.end, self.leader_epoch if self.end else -1, 0

    def fetched(
        self,
        leader_epoch: int,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        diverging: tuple[int, int] | None,
        records: memoryview | None,
    ) -> bool | None:
        assert not self.is_over, "it is not followed any more"
        assert log_start_offset >= 0 or error
        self.answers.append((leader_epoch, error))
        if leader_epoch != self.leader_epoch:
            return True
        if error:
            return False
        if diverging is not None:
            assert not records
            self.cuts.append(diverging)
            self.end = diverging[1]
            return True
        if records and self.is_slow:
            self.writing.append(bytes(records))
            return None
        self.high_watermark = high_watermark
        self.write(bytes(records or b""))
        return True

    def fetched_in_part(
        self,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        records: memoryview,
    ) -> int | None:
        assert not self.is_over, "it is not followed any more"
        assert not self.writing, "it is given more while it is being written"
        assert leader_epoch == self.leader_epoch
        assert log_start_offset >= 0
        self.parts.append(len(records))
        if self.fails:
            return None
        if self.is_slow:
            return 0
        whole = len(records) // RECORD.size * RECORD.size
        self.high_watermark = high_watermark
        self.write(bytes(records[:whole]))
        return whole

    def write(self, records: bytes) -> None:
        for (offset,) in RECORD.iter_unpack(records):
            assert offset == self.end, f"{offset} comes after {self.end - 1}"
            self.end += 1

    def finish_writing(self) -> None:
        written, self.writing = self.writing, []
        for records in written:
            self.write(records)
