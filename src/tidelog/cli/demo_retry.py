"""The step of the demo in which an answer is lost, and a producer sends its batch again."""

from typing import Any, Final

from confluent_kafka import Producer, TopicPartition

from tidelog.cli.demo_clients import QUIET, SECONDS_MAX, open_consumer
from tidelog.cli.demo_proxy import LosingProxy
from tidelog.cli.demo_serving import READINGS, Play

RECORDS: Final = 100


def lose_an_answer(play: Play) -> None:
    screen, node = play.screen, play.node
    screen.step("Retry: an answer is lost, an idempotent producer sends again")
    end_before = _log_end(play)
    proxy = LosingProxy(node.proxy, node.behind_the_proxy)
    try:
        told = _produce(f"{node.proxy[0]}:{node.proxy[1]}")
    finally:
        proxy.close()
    assert told == list(range(end_before, end_before + RECORDS)), "each record has its offset"
    assert len(proxy.sent) > 1, "the batch was sent again"
    added = _log_end(play) - end_before
    assert added == RECORDS, f"the log has {added} more records than before"
    screen.table(
        ["batch at the broker", "sequence", "its answer", "and that"],
        [
            (
                f"of producer {sent.batch.producer_id}",
                f"{sent.batch.base_sequence} to "
                f"{sent.batch.base_sequence + sent.batch.record_count - 1}",
                f"offset {sent.answered_offset}",
                "was lost on the way" if sent.is_lost else "reached the producer",
            )
            for sent in proxy.sent
        ],
    )
    screen.notice(
        f"The log has grown by {added} records, each once. The broker knew the batch by its "
        f"producer and sequence, and answered as it had before."
    )


def _log_end(play: Play) -> int:
    consumer = open_consumer(play.address)
    _, end = consumer.get_watermark_offsets(TopicPartition(READINGS, 0), timeout=10)
    consumer.close()
    return int(end)


def _produce(address: str) -> list[int]:
    """The offsets of the records, as confluent-kafka was told them."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 200,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 10,
        }
        | QUIET
    )
    for number in range(RECORDS):
        producer.produce(READINGS, b"%d" % number, partition=0, on_delivery=delivered)
    assert producer.flush(SECONDS_MAX) == 0, "the retry was not acknowledged"
    return offsets
