"""Writes three records to the node on 127.0.0.1:9092 and reads them back.

Start one with `tidelog server`. Nothing here knows of tidelog: this is how confluent-kafka is
used with any Kafka. The topic is made when it is first written to.
"""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
for number in range(3):
    producer.produce("hello", key=f"k{number}", value=f"hello {number}")
producer.flush()

consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "hello"})
consumer.assign([TopicPartition("hello", 0, OFFSET_BEGINNING)])
for message in consumer.consume(3, timeout=10):
    print(message.topic(), message.offset(), message.key(), message.value())
consumer.close()
