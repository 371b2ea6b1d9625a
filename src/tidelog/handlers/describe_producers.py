"""DescribeProducers, API 61: who writes to a partition with a producer id, and open transactions.

It shows what the log of the partition keeps of its producers (A3).
"""

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
            partitions.put(_partition(node, topic.name, index))
            yield None
        topics.put({"name": topic.name, "partitions": partitions})
        yield None
    return {"topics": topics}


def _partition(node: Node, topic: str, index: int) -> Values:
    try:
        if not is_legal_topic(topic):
            raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic!r} is no topic's name")
        producers = find_local(node, topic, index).log.producers.by_id
    except KafkaError as error:
        return {**error_fields(error), "partition_index": index, "active_producers": ()}
    shown = [_producer(key, producers[key]) for key in sorted(producers)]
    return {**NO_ERROR, "partition_index": index, "active_producers": shown}


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
