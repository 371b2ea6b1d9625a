"""Writing encoded batches in bulk: each is written once, in order, whatever happens on the way.

There is no thread: batches are sent, and answers taken, while the caller is in `send` or
`flush`; in between, requests and answers are under way. A batch that cannot be written breaks
the writer: what was handed to it later would follow a gap.
"""

from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.closing import Closing
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import MOVED, NOT_LEADING, PAUSE_MS
from tidelog.client.produce_link import Outcome, Parcel
from tidelog.client.producer_id import new_producer
from tidelog.client.sockets import now_ms, pause_ms, readable
from tidelog.client.transacting import OpenTransaction, add_partition
from tidelog.client.write_queue import EPOCH_MAX, NO_PRODUCER, Batch, WriteQueue
from tidelog.client.write_routes import WriteRoutes
from tidelog.records.batch import HEADER_SIZE, MAGIC, read_header

ALL_REPLICAS: Final = -1
IN_FLIGHT_MAX: Final = 5
TIMEOUT_MS: Final = 120_000
BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
"""What may wait or be under way before `send` waits too; a larger batch goes alone."""
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
_WRITTEN: Final = (ErrorCode.none, ErrorCode.duplicate_sequence_number)
_OUT_OF_STEP: Final = (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id)
_TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
_DOUBTFUL: Final = NOT_LEADING | {ErrorCode.request_timed_out}
"""A leader that is cut off waits in vain for followers that have another one by now."""
_RETRIED: Final = MOVED | {
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.corrupt_message,
    ErrorCode.unknown_server_error,
    ErrorCode.throttling_quota_exceeded,
    *_OUT_OF_STEP,
}


class BatchWriter(Closing):
    """Not for several threads at once."""

    def __init__(
        self,
        client: Client,
        *,
        acks: int = ALL_REPLICAS,
        is_idempotent: bool = True,
        in_flight_max: int = IN_FLIGHT_MAX,
        timeout_ms: int = TIMEOUT_MS,
        transaction: OpenTransaction | None = None,
    ) -> None:
        """What is written is part of the transaction, if one is given."""
        if is_idempotent and (acks != ALL_REPLICAS or not 1 <= in_flight_max <= IN_FLIGHT_MAX):
            raise BadValue(
                f"an idempotent writer needs acks=-1 and at most {IN_FLIGHT_MAX} requests "
                f"under way, not acks={acks} and {in_flight_max}"
            )
        self._client = client
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._in_flight_max = in_flight_max
        self._timeout_ms = timeout_ms
        self._transaction = transaction
        self._producer = NO_PRODUCER if transaction is None else transaction.producer
        self._queues: dict[tuple[str, int], WriteQueue] = {}
        self._busy: dict[WriteQueue, None] = {}
        """Those with batches that wait."""
        transactional_id = None if transaction is None else transaction.transactional_id
        self._routes = WriteRoutes(client, acks, transactional_id)
        self._bytes_under_way = 0
        self._left_ms = now_ms()
        """When the caller was last here."""
        self._acknowledged: list[tuple[str, int, int, int]] = []
        self._error: KafkaError | None = None

    def close(self) -> None:
        """Does not wait for anything: what was not flushed may or may not be written."""
        self._routes.close()

    def send(self, topic: str, partition: int, batch: bytearray) -> None:
        """Takes an encoded batch of format v2, base offset 0, which is the writer's from now on:
        producer, sequence and CRC are written into it. Waits while too much is under way."""
        self._check()
        self._come_back()
        count = _records_in(batch)
        queue = self._queue(topic, partition)
        while self._bytes_under_way and self._bytes_under_way + len(batch) > BUFFER_BYTES_MAX:
            self._turn(PAUSE_MS)
        queue.add(Batch(batch, count, now_ms() + self._timeout_ms))
        self._busy[queue] = None
        self._bytes_under_way += len(batch)
        self._turn(0)
        self._left_ms = now_ms()

    def flush(self) -> None:
        """Waits until all is acknowledged, or raises why it cannot be."""
        self._check()
        self._come_back()
        while self._bytes_under_way:
            self._turn(PAUSE_MS)

    def acknowledged(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition, base offset and record count of batches, since the last call. The
        offset is -1 where the broker does not say it: without acks, or when a batch that was
        sent again had been written long before."""
        found, self._acknowledged = self._acknowledged, []
        return found

    def _queue(self, topic: str, partition: int) -> WriteQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            self._routes.check(topic, partition)
            if self._is_idempotent and self._producer == NO_PRODUCER:
                self._producer = new_producer(self._client)
            if self._transaction is not None:
                add_partition(self._client, self._transaction, TopicPartition(topic, partition))
            queue = self._queues[topic, partition] = WriteQueue(
                topic,
                partition,
                self._producer,
                is_transactional=self._transaction is not None,
            )
            self._routes.admit(queue)
        return queue

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _come_back(self) -> None:
        """While the caller is away nothing is sent and no answer is taken, so that this time does
        not count: however long rows are in the making, those before them are not late."""
        away_ms = now_ms() - self._left_ms
        if away_ms >= PAUSE_MS:
            for queue in self._queues.values():
                queue.put_off(away_ms)
            for link in self._routes.links.values():
                link.put_off(away_ms)

    def _turn(self, wait_ms: int) -> None:
        """Sends what can be sent, and takes the answers that are there, or waits for one."""
        try:
            while self._send_some():
                pass
            self._receive(wait_ms)
            self._give_up_late()
        except KafkaError as error:
            self._error = error
            self.close()
            raise

    # -- sending

    def _send_some(self) -> bool:
        """At most one batch of each partition; whether there may be more."""
        if not self._busy:
            return False
        leaderless: list[WriteQueue] = []
        by_leader: dict[int, list[Parcel]] = {}
        now = now_ms()
        for queue in self._busy:
            batch = queue.next_to_send(now)
            if batch is None:
                continue
            if queue.is_out_of_step:
                queue.begin_anew(self._next_producer(queue))
            led = self._routes.leader(queue)
            if led is None:
                leaderless.append(queue)
            else:
                parcel = Parcel(queue, batch, led.topic_id)
                by_leader.setdefault(led.leader, []).append(parcel)
        if leaderless:
            self._routes.look_for(leaderless)
        sent = [self._send_to(leader, parcels) for leader, parcels in by_leader.items()]
        return any(sent) or bool(leaderless)

    def _send_to(self, leader: int, parcels: list[Parcel]) -> bool:
        try:
            link = self._routes.link(leader)
            if link.requests_under_way >= self._in_flight_max:
                return False
            chosen = _fitting(parcels)
            for queue, batch, _ in chosen:
                queue.sent(batch)
                if not queue.waiting:
                    del self._busy[queue]
            for outcome in link.send(chosen):
                self._settle(outcome)
        except (Unreachable, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code not in _RETRIED:
                raise
            self._lose(leader, str(error))
            for queue, _, _ in parcels:
                self._routes.forget(queue)
                queue.wait(str(error), now_ms() + PAUSE_MS)
        return True

    def _next_producer(self, queue: WriteQueue) -> tuple[int, int]:
        if self._transaction is not None:
            why = f"{queue}: a part of {self._transaction.transactional_id} is not there any more"
            raise KafkaError(ErrorCode.invalid_txn_state, why)
        producer_id, epoch = queue.producer
        return (producer_id, epoch + 1) if epoch < EPOCH_MAX else new_producer(self._client)

    # -- answers

    def _receive(self, wait_ms: int) -> None:
        links = self._routes.links.items()
        asked = {link.stream: leader for leader, link in links if link.requests_under_way}
        if not asked and wait_ms:
            pause_ms(wait_ms)
        for stream in readable(list(asked), wait_ms) if asked else ():
            leader = asked[stream]
            try:
                outcomes = self._routes.link(leader).receive()
            except Unreachable as error:
                self._lose(leader, str(error))
            else:
                for outcome in outcomes:
                    self._settle(outcome)
        for leader, link in list(links):
            if link.is_late:
                self._lose(leader, f"broker {leader} did not answer in time")

    def _settle(self, outcome: Outcome) -> None:
        (queue, batch, _), code, base_offset, message = outcome
        if code in _WRITTEN:
            queue.settled(batch)
            self._bytes_under_way -= len(batch.data)
            self._acknowledged.append((queue.topic, queue.partition, base_offset, batch.count))
            return
        if code not in _RETRIED:
            raise _refused(outcome)
        if code in _OUT_OF_STEP and queue.is_first(batch):
            queue.is_out_of_step = True
        if code in MOVED or code in _DOUBTFUL:
            self._routes.forget(queue, is_doubtful=code in _DOUBTFUL)
        self._send_again(queue, batch, message)

    def _lose(self, leader: int, why: str) -> None:
        """What was under way is sent again: what had been written is recognized then."""
        for queue, batch, _ in self._routes.drop(leader):
            self._routes.forget(queue)
            self._send_again(queue, batch, why)

    def _send_again(self, queue: WriteQueue, batch: Batch, why: str) -> None:
        queue.failed(batch, why, now_ms() + PAUSE_MS)
        self._busy[queue] = None

    def _give_up_late(self) -> None:
        now = now_ms()
        for leader, link in self._routes.links.items():
            parcel = link.late(now)
            if parcel is not None:
                raise self._too_late(parcel.queue, f"broker {leader} has not answered")
        for queue in self._busy:
            if now > queue.waiting[0].deadline_ms:
                raise self._too_late(queue, queue.last_problem)

    def _too_late(self, queue: WriteQueue, why: str) -> KafkaError:
        what = f"{queue}: not written within {self._timeout_ms / 1000:g} s: {why}"
        return KafkaError(ErrorCode.request_timed_out, what)


def _fitting(parcels: list[Parcel]) -> list[Parcel]:
    """As many as one request takes, and at least one."""
    total = 0
    for number, parcel in enumerate(parcels):
        total += len(parcel.batch.data)
        if number and total > REQUEST_BYTES_MAX:
            return parcels[:number]
    return parcels


def _records_in(batch: bytearray) -> int:
    header = read_header(batch) if len(batch) >= HEADER_SIZE else None
    if header is None or header.magic != MAGIC or header.size != len(batch):
        raise BadValue(f"{len(batch)} bytes that are not one record batch of format v2")
    return header.record_count


def _refused(outcome: Outcome) -> KafkaError:
    (queue, batch, _), code, _, message = outcome
    if code in _TOO_LARGE:
        message = (
            f"a batch of {len(batch.data)} bytes with {batch.count} records is larger than the "
            f"topic's max.message.bytes allows: {message}"
        )
    return KafkaError(code, f"{queue}: {message}")
