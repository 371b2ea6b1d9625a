"""Reading ranges of offsets in bulk: encoded batches, chunk by chunk, with no Python per record.

A chunk lies in memory that the next one overwrites. The next question is sent before the last
chunk of an answer is handed out, so that what comes next is under way while the caller works. A
partition that moves to another broker is followed there; offsets that are gone raise `DataLost`.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.aborted import without_aborted
from tidelog.client.batch_walk import Walked, walk_batches
from tidelog.client.client import Client
from tidelog.client.closing import Closing
from tidelog.client.cluster import text_of_id
from tidelog.client.connection import Room
from tidelog.client.errors import Unreachable
from tidelog.client.fetch_link import FetchLink, FetchOptions
from tidelog.client.leaders import MOVED, NOT_LEADING, PAUSE_MS, Led, find_leader, leader_of
from tidelog.client.nearby_sockets import open_nearest
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.sockets import Opener, now_ms, open_stream, pause_ms
from tidelog.wire.fetch_client import FetchedPartition

PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = 1024 * 1024
"""What is read at once of an answer that lies in a file: it stays in a processor's caches."""
WAIT_MS_MAX: Final = 500
READ_COMMITTED: Final = 1
_LARGE_PIECE_BYTES: Final = 4 * PIECE_BYTES
_ANSWER_BYTES: Final = 4096
"""What an answer has around its records."""
_HOLE_ANSWERS: Final = 3
_PROBE_BYTES: Final = 1
_GONE: Final = frozenset((ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id))
_RETRIED: Final = MOVED | {ErrorCode.offset_not_available, ErrorCode.unknown_server_error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets from `start` on, before `end`, of one partition of a topic; of that topic only
    which has the id, if it is given."""

    topic: str
    topic_id: bytes | None
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class DataLost(KafkaError):
    """Offsets that were in the range are gone: aged out, cut off, or the topic is another one."""

    def __init__(self, wanted: Range, first: int, next_there: int, why: str) -> None:
        what = f"{wanted}: offsets {first} to {next_there - 1} are gone: {why}"
        super().__init__(ErrorCode.offset_out_of_range, what)
        self.wanted = wanted
        self.first = first
        """The first offset that is gone."""
        self.next_there = next_there
        """Where reading may go on; the end of the range if nothing is left of it."""


class RangeReader(Closing):
    """Not for several threads at once. One connection is kept, to the broker read last."""

    def __init__(
        self,
        client: Client,
        *,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
        wait_ms_max: int = WAIT_MS_MAX,
        isolation_level: int = 0,
        patience_ms: int | None = None,
    ) -> None:
        """`patience_ms` is how long it is tried to come further: as long as the client waits for
        one answer, if nothing is said. With more, a broker that never answers can be left."""
        self.client = client
        self.patience_ms = client.timeout_ms if patience_ms is None else patience_ms
        self.partition_bytes_max = partition_bytes_max
        self.options = FetchOptions(wait_ms_max=wait_ms_max, isolation_level=isolation_level)
        self.room = Room(partition_bytes_max + _ANSWER_BYTES)
        self._link: FetchLink | None = None
        self._opener: Opener = open_nearest

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def read(self, wanted: Range) -> Generator[memoryview, None, None]:
        """Whole record batches whose offsets meet the range, in order, in chunks of at most
        about `partition_bytes_max` (a single larger batch alone), their CRCs checked. Each chunk
        is good until the next one is asked for. Holes are passed over, and what was aborted, if
        only what is committed counts; the first and the last
        batch may have records outside of the range."""
        if not 0 <= wanted.start <= wanted.end:
            raise BadValue(f"{wanted}: offsets {wanted.start} to {wanted.end} are no range")
        reading = _Reading(self, wanted)
        try:
            while not reading.is_done:
                chunk = reading.next_chunk()
                if len(chunk):
                    yield from reading.kept(chunk)
                    reading.resume()
        finally:
            if self.is_reading_ahead:
                self.close()

    @property
    def is_reading_ahead(self) -> bool:
        """Whether the next chunk is under way."""
        return self._link is not None and self._link.is_asked

    def take_port(self) -> None:
        """From now on: whoever answers beside a port may be another than who answers there, where
        addresses are shared, and what he hands over may not come through."""
        self._opener = open_stream

    def link_to(self, led: Led) -> FetchLink:
        if self._link is not None and self._link.leader != led.leader:
            self.close()
        if self._link is None:
            self._link = FetchLink(self.client, led, self.options, self._opener)
        return self._link


class _Reading:
    """One range on its way."""

    def __init__(self, reader: RangeReader, wanted: Range) -> None:
        self._reader = reader
        self._client = reader.client
        self._wanted = wanted
        self._position = wanted.start
        self._led: Led | None = None
        self._topic_id = wanted.topic_id
        self._link: FetchLink | None = None
        self._bytes_max = reader.partition_bytes_max
        self._empty_answers = 0
        self._aborted: Sequence[tuple[int, int]] = ()
        self._taken_up_to: int | None = None
        """In the records of the answer that is being taken; None if there is none."""
        self._piece_bytes = PIECE_BYTES
        self._deadline_ms = 0
        self.resume()

    @property
    def is_done(self) -> bool:
        return self._position >= self._wanted.end

    def kept(self, chunk: memoryview) -> Iterable[memoryview]:
        """The same without what was aborted."""
        return without_aborted(chunk, self._aborted) if self._aborted else (chunk,)

    def resume(self) -> None:
        """However long the caller took over a chunk: by then the connection may be gone."""
        self._deadline_ms = now_ms() + self._reader.patience_ms

    def next_chunk(self) -> memoryview:
        """May be empty, if there was nothing to be had."""
        try:
            if self._taken_up_to is not None:
                return self._take(self._taken_up_to)
            fetched = self._exchange()
            if fetched is None:
                return memoryview(b"")
            if not fetched.records:
                self._pass_hole(fetched)
                return memoryview(b"")
            self._aborted = fetched.aborted or ()
            return self._take(0)
        except Unreachable as error:
            self._try_again(error)
            return memoryview(b"")
        except KafkaError as error:
            if error.code not in _RETRIED:
                raise
            self._try_again(error)
            return memoryview(b"")

    def _exchange(self) -> FetchedPartition | None:
        if self._link is None:
            self._led = self._find()
            self._link = self._reader.link_to(self._led)
        if not self._link.is_asked:
            self._ask()
        fetched = self._link.answer(self._reader.room)
        if fetched is not None and fetched.error_code:
            self._refused(ErrorCode(fetched.error_code))
            return None
        return fetched

    def _ask(self) -> None:
        assert self._link is not None
        assert self._led is not None
        place = (self._wanted.topic, self._wanted.partition)
        self._link.ask(place, self._led, self._position, self._bytes_max)

    def _find(self) -> Led:
        led = find_leader(self._client, self._wanted.topic, self._wanted.partition)
        if self._topic_id is None:
            self._topic_id = led.topic_id
        if led.topic_id is None or led.topic_id == self._topic_id:
            return led
        assert self._topic_id is not None
        wanted_id, found_id = text_of_id(self._topic_id), text_of_id(led.topic_id)
        # One that lags behind the others, or is cut off, tells of the topic that was there before.
        for cluster in self._client.hear_all([self._wanted.topic]):
            topic = cluster.topics.get(self._wanted.topic)
            if topic is not None and topic.topic_id == wanted_id:
                return leader_of(topic, self._wanted.partition)
        raise self._lost(
            self._position,
            self._wanted.end,
            f"the topic was deleted and made again: its id was {wanted_id} and is now {found_id}",
        )

    def _take(self, at: int) -> memoryview:
        """The whole batches of the answer from a position on, as far as they are read at once."""
        records = None if self._link is None else self._link.records
        if records is None:
            # The reader was closed in between.
            self._taken_up_to = None
            return memoryview(b"")
        # What was aborted is told by the whole of an answer.
        piece = records.piece(at, records.size if self._aborted else self._piece_bytes)
        is_last = at + len(piece) == records.size
        walked = self._walk(piece)
        if walked.size:
            self._position = walked.next_offset
            self._taken_up_to = None if is_last or self.is_done else at + walked.size
            self._progress()
            if not self.is_done and self._taken_up_to is None:
                self._ask_ahead()
            return piece[: walked.size]
        self._taken_up_to = None
        if self._position < self._wanted.end <= walked.next_offset:
            self._position = walked.next_offset
        elif not is_last:
            self._piece_bytes = _more_than(len(piece), walked.cut_bytes)
            self._taken_up_to = at
        elif not at:
            self._ask_for_more(walked)
        return piece[:0]

    def _walk(self, records: memoryview) -> Walked:
        try:
            return walk_batches(records, self._position, self._wanted.end)
        except KafkaError as error:
            raise KafkaError(error.code, f"{self._wanted}: {error.message}") from error

    def _ask_for_more(self, walked: Walked) -> None:
        """Brokers send the first batch whole, whatever its size; from one that does not, it is
        asked for by its size."""
        if walked.cut_bytes <= self._bytes_max:
            why = f"{self._wanted}: no whole batch at offset {self._position}"
            raise KafkaError(ErrorCode.corrupt_message, why)
        self._bytes_max = walked.cut_bytes

    def _ask_ahead(self) -> None:
        try:
            self._ask()
        except Unreachable:
            # What has come is handed out first; then the leader is looked for.
            self._drop_link()

    def _progress(self) -> None:
        self._bytes_max = self._reader.partition_bytes_max
        self._empty_answers = 0
        self.resume()

    def _pass_hole(self, fetched: FetchedPartition) -> None:
        """Nothing came. Either the log does not reach to the end of the range, at present; or it
        does, and compaction has left nothing between here and there; or the broker has yet to get
        what is there from where it keeps old records."""
        is_bound = self._reader.options.isolation_level == READ_COMMITTED
        bound = fetched.last_stable_offset if is_bound else fetched.high_watermark
        if bound >= self._wanted.end:
            self._empty_answers += 1
            if self._empty_answers >= _HOLE_ANSWERS and self._is_empty_up_to(bound):
                self._position = self._wanted.end
                return
        if now_ms() > self._deadline_ms:
            raise self._short(bound, fetched.high_watermark)
        if bound < self._wanted.end:
            self._doubt_leader()

    def _doubt_leader(self) -> None:
        """One that was deposed and has not heard of it says that its log ends where it does."""
        self._drop_link()
        self._client.hear_all([self._wanted.topic])

    def _is_empty_up_to(self, bound: int) -> bool:
        """Where a batch follows, a broker sends it, however far on it is. So none does, if none is
        found at the end of the log either, which every broker has at hand."""
        assert self._link is not None
        assert self._led is not None
        place = (self._wanted.topic, self._wanted.partition)
        try:
            self._link.ask(place, self._led, bound - 1, _PROBE_BYTES)
            fetched = self._link.answer(self._reader.room)
        except (Unreachable, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code not in _RETRIED:
                raise
            self._try_again(error)
            return False
        return fetched is not None and not fetched.error_code and not fetched.records

    def _short(self, bound: int, high_watermark: int) -> KafkaError:
        if bound >= self._wanted.end:
            why = f"{self._wanted}: nothing came from offset {self._position} on, and more is there"
            return KafkaError(ErrorCode.request_timed_out, why)
        if high_watermark >= self._wanted.end:
            why = f"{self._wanted}: an open transaction holds back what follows offset {bound}"
            return KafkaError(ErrorCode.request_timed_out, why)
        return self._cut_off(max(bound, self._position))

    def _cut_off(self, log_end: int) -> DataLost:
        return self._lost(log_end, self._wanted.end, f"the log was cut off, it ends at {log_end}")

    def _lost(self, first: int, next_there: int, why: str) -> DataLost:
        return DataLost(self._wanted, first, next_there, why)

    def _refused(self, code: ErrorCode) -> None:
        if code is not ErrorCode.offset_out_of_range:
            raise KafkaError(code, f"{self._wanted}: {code.name.replace('_', ' ')}")
        self._refused_offset()

    def _refused_offset(self) -> None:
        """Whether it lies before the beginning of the log or behind its end, nobody says. What is
        behind the end may be there later: a broker that has just taken over may not know yet how
        far it reaches."""
        self._find()
        place = self._wanted.partition
        begins = list_offsets(self._client, self._wanted.topic, {place: EARLIEST})[place]
        if begins > self._position:
            next_there = min(begins, self._wanted.end)
            raise self._lost(self._position, next_there, f"the log begins at offset {begins} now")
        ends = list_offsets(self._client, self._wanted.topic, {place: LATEST})[place]
        self._doubt_leader()
        self._try_again(self._cut_off(min(ends, self._position)))

    def _try_again(self, error: KafkaError | Unreachable) -> None:
        self._drop_link()
        self._reader.take_port()
        if now_ms() + PAUSE_MS <= self._deadline_ms:
            if isinstance(error, KafkaError) and error.code in NOT_LEADING | _GONE:
                self._client.hear_all([self._wanted.topic])
            if isinstance(error, KafkaError) and error.code in _GONE:
                # Whoever says so may be cut off, and not have heard that the topic was made.
                self._client.turn_away()
            pause_ms(PAUSE_MS)
        elif isinstance(error, KafkaError) and error.code in _GONE:
            raise self._lost(self._position, self._wanted.end, error.message) from error
        else:
            raise error

    def _drop_link(self) -> None:
        self._link = None
        self._taken_up_to = None
        self._reader.close()


def _more_than(piece_bytes: int, batch_bytes: int) -> int:
    """Of a file is read at once from now on, so that large batches are not read again and again,
    each time a little further."""
    return max(batch_bytes, min(4 * batch_bytes, _LARGE_PIECE_BYTES), 2 * piece_bytes)
