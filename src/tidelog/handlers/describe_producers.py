"""DescribeProducers, API 61: who writes to a partition with a producer id, and open transactions.

It shows what the log of the partition keeps of its producers (A3). Whoever wrote there within the
last day is one, and they may be very many.
"""

from collections.abc import Generator, Mapping

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import is_legal_topic
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.log.producers import Producer


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        partitions = Rows(request, "topics", "partitions")
        for index in topic.partition_indexes:
            partitions.put((yield from _partition(node, request, topic.name, index)))
            yield None
        topics.put({"name": topic.name, "partitions": partitions})
        yield None
    return {"topics": topics}


def _partition(node: Node, request: Request, topic: str, index: int) -> Answering:
    try:
        if not is_legal_topic(topic):
            raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic!r} is no topic's name")
        producers = find_local(node, topic, index).log.producers.by_id
    except KafkaError as error:
        return {**error_fields(error), "partition_index": index, "active_producers": ()}
    shown = yield from _shown(request, producers)
    return {**NO_ERROR, "partition_index": index, "active_producers": shown}


def _shown(request: Request, producers: Mapping[int, Producer]) -> Generator[None, None, Rows]:
    """Without those that are forgotten meanwhile."""
    shown = Rows(request, "topics", "partitions", "active_producers")
    for key in sorted(producers):
        producer = producers.get(key)
        if producer is not None:
            shown.put(_producer(key, producer))
        yield None
    return shown


def _producer(producer_id: int, producer: Producer) -> Values:
    return {
        "producer_id": producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": producer.txn_first_offset,
    }


API = Api(key=61, first=0, last=0, handle=handle)
