"""A consumer of the newer group protocol as a process of its own, to be killed: prints a line for
each record it has got."""

import sys

from confluent_kafka import Consumer


def main(bootstrap: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            print(message.partition(), message.offset(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
