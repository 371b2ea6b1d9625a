"""What brokers ask one another about transactions: to write markers, and whether they are open.

Each of the two has connections of its own, so that a marker that waits to be committed holds up
nobody who asks. A broker that asks itself is answered by the same functions without any.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.handlers import add_partitions_to_txn, write_txn_markers
from tidelog.handlers.api import Node
from tidelog.handlers.building import Values, build
from tidelog.handlers.transactional import add_or_verify
from tidelog.marker_sending import Lot, Results
from tidelog.peers.peers import BrokerPeers
from tidelog.transactions.records import by_topic
from tidelog.transactions.requests import Add
from tidelog.transactions.surroundings import Ending
from tidelog.verification import Codes, Question
from tidelog.wire import codec

_ADD = add_partitions_to_txn.API
_WRITE = write_txn_markers.API


class TransactionCalls:
    def __init__(self, node: Any) -> None:
        self._node: Node = node
        self._peers: tuple[BrokerPeers, BrokerPeers] | None = None

    def connect(self, make: Callable[[], BrokerPeers]) -> None:
        """From here on other brokers can be asked."""
        self._peers = (make(), make())

    def close(self) -> None:
        for peers in self._peers or ():
            peers.close()

    # -- markers

    def deliver(
        self, broker_id: int, lot: Lot, done: Callable[[Results | KafkaError], None]
    ) -> None:
        if broker_id == self._node.broker_id:
            write_txn_markers.write_lot(self._node, lot, done)
            return
        assert self._peers is not None
        markers = [_marker(ending, partitions) for ending, partitions in lot]
        request = _request(_WRITE.key, _WRITE.last, {"markers": markers})
        answered = partial(_marked, done)
        self._peers[0].forward(broker_id, _WRITE.key, _WRITE.last, request, answered)

    # -- verification

    def coordinator_of(self, transactional_id: str) -> int | None:
        coordinator = self._node.coordinators.transactions
        index = coordinator.index_of(transactional_id)
        if index is None:
            return None
        return self._node.metadata.image.topics[coordinator.topic].partitions[index].leader

    def ask(
        self,
        broker_id: int,
        asked: Sequence[tuple[Question, Add]],
        done: Callable[[Sequence[Codes] | KafkaError], None],
    ) -> None:
        if broker_id == self._node.broker_id:
            self._ask_here(asked, done)
            return
        assert self._peers is not None
        transactions = [_transaction(question, add) for question, add in asked]
        request = _request(_ADD.key, _ADD.last, {"transactions": transactions})
        answered = partial(_added, [add for _, add in asked], done)
        self._peers[1].forward(broker_id, _ADD.key, _ADD.last, request, answered)

    def _ask_here(
        self,
        asked: Sequence[tuple[Question, Add]],
        done: Callable[[Sequence[Codes] | KafkaError], None],
    ) -> None:
        found: dict[int, Codes] = {}

        def end(number: int, codes: Codes) -> None:
            found[number] = codes
            if len(found) == len(asked):
                done([found[at] for at in range(len(asked))])

        for number, (question, add) in enumerate(asked):
            add_or_verify(self._node, add, partial(end, number), verify=not question.is_adding)


def _request(api_key: int, version: int, values: Values) -> Any:
    return build(codec.entity_type(api_key, version, "request"), values)


def _marker(ending: Ending, partitions: Sequence[TopicPartition]) -> Values:
    return {
        "producer_id": ending.producer_id,
        "producer_epoch": ending.producer_epoch,
        "transaction_result": ending.is_commit,
        "coordinator_epoch": ending.coordinator_epoch,
        "transaction_version": ending.transaction_version,
        "topics": [
            {"name": topic, "partition_indexes": indexes}
            for topic, indexes in by_topic(partitions).items()
        ],
    }


def _marked(done: Callable[[Results | KafkaError], None], answer: Any) -> None:
    if isinstance(answer, KafkaError):
        done(answer)
        return
    done(
        {
            (marker.producer_id, TopicPartition(topic.name, row.partition_index)): row.error_code
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        }
    )


def _transaction(question: Question, add: Add) -> Values:
    return {
        "transactional_id": question.transactional_id,
        "producer_id": question.producer.producer_id,
        "producer_epoch": question.producer.epoch,
        "verify_only": not question.is_adding,
        "topics": [
            {"name": topic, "partitions": indexes}
            for topic, indexes in by_topic(add.partitions).items()
        ],
    }


def _added(
    asked: Sequence[Add], done: Callable[[Sequence[Codes] | KafkaError], None], answer: Any
) -> None:
    if isinstance(answer, KafkaError):
        done(answer)
        return
    if answer.error_code is not ErrorCode.none:
        done([dict.fromkeys(add.partitions, answer.error_code) for add in asked])
        return
    by_id = {
        result.transactional_id: {
            TopicPartition(topic.name, row.partition_index): row.partition_error_code
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }
    done([by_id.get(add.transactional_id, {}) for add in asked])
