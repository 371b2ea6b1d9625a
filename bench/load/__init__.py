"""Load for any Kafka-compatible broker, cheap enough that the broker is what is measured.

`python -m bench.load 127.0.0.1:9092 --pid N` drives a broker that runs already;
`bench.broker_bench` starts brokers and compares them.
"""
