"""A program that begins a transaction, writes one record to each partition, and waits to be killed.

hanging.py NOTES NAME BOOTSTRAP TOPIC PARTITIONS TIMEOUT_MS
"""

import signal
import sys

from confluent_kafka import Producer

from support.notes import Notes
from support.workload import PATIENT


def main(*arguments: str) -> None:
    path, name, bootstrap, topic, partitions, timeout_ms = arguments
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": int(timeout_ms),
            **PATIENT,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for index in range(int(partitions)):
        producer.produce(topic, "never committed", partition=index)
    assert producer.flush(60) == 0
    Notes(path).add("open")
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
