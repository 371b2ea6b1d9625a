"""A follower's fetch and its answer, as plain objects, and what both sides do with them.

It is what a broker does around its replicas, without bytes: the leader's side fences, notes and
reads; the follower's side appends, cuts or begins anew as the machine says, and nothing else.
"""

from typing import TYPE_CHECKING, Final, cast

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import NO_TOPIC_ID
from tidelog.log import retention
from tidelog.log.partition_log import PartitionLog
from tidelog.replication.replica import Divergence, Replica
from tidelog.replication.verdicts import Verdict
from tidelog.trials.model_log import ModelLog, Record

if TYPE_CHECKING:
    from tidelog.trials.oracle import Oracle

NO_ERROR: Final = 0


class Copy:
    """One replica with its log."""

    __slots__ = ("log", "oracle", "replica", "topic_id")
    oracle: "Oracle"
    """Who looks at it, where somebody does."""

    def __init__(self, log: ModelLog, replica: Replica, topic_id: bytes = NO_TOPIC_ID) -> None:
        self.log = log
        self.replica = replica
        self.topic_id = topic_id


class Ask:
    __slots__ = ("broker_epoch", "follower", "leader_epoch", "position", "topic_id")

    def __init__(self, replica: Replica, broker_epoch: int, topic_id: bytes = NO_TOPIC_ID) -> None:
        self.topic_id = topic_id
        self.follower = replica.broker_id
        self.broker_epoch = broker_epoch
        self.leader_epoch = replica.leader_epoch
        self.position = replica.fetch_position()


class Answer:
    __slots__ = ("diverging", "error", "high_watermark", "log_start_offset", "records")

    def __init__(self, error: int = NO_ERROR, diverging: Divergence | None = None) -> None:
        self.error = error
        self.diverging = diverging
        self.high_watermark = -1
        self.log_start_offset = -1
        self.records: list[Record] = []


def serve(copy: Copy, ask: Ask, count_max: int, now_ms: int) -> Answer:
    """What a leader answers."""
    replica, log = copy.replica, copy.log
    try:
        replica.check_leads(ask.leader_epoch)
        diverging = replica.fetched(ask.follower, ask.broker_epoch, ask.position, now_ms)
    except KafkaError as error:
        return Answer(error.code)
    answer = Answer(NO_ERROR, diverging)
    answer.log_start_offset = log.log_start_offset
    answer.high_watermark = replica.high_watermark
    offset = ask.position[0]
    if diverging is None:
        if offset < log.log_start_offset:
            answer.error = ErrorCode.offset_out_of_range
        else:
            answer.records = log.read(offset, count_max)
    return answer


def take(copy: Copy, ask: Ask, answer: Answer) -> Verdict:
    """What a follower does with an answer."""
    replica, log = copy.replica, copy.log
    verdict = replica.answered(
        ask.leader_epoch, answer.error, answer.diverging, answer.log_start_offset
    )
    if verdict is Verdict.append:
        if ask.position[0] != log.log_end_offset:
            return Verdict.drop
        log.append(answer.records)
        replica.followed(answer.high_watermark)
        start = min(answer.log_start_offset, replica.high_watermark)
        if start > log.log_start_offset:
            retention.advance_log_start(cast("PartitionLog", log), start)
    elif verdict is Verdict.truncate:
        log.truncate_suffix(replica.cut_offset)
        replica.was_cut()
    elif verdict is Verdict.restart:
        log.begin_at(replica.cut_offset)
        replica.was_cut()
    return verdict
