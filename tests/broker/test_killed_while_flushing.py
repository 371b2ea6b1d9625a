"""A broker that is killed while it flushes what `flush.messages` wants durable: nobody is told of
that afterwards either, before it is (S7, V8)."""

from support.brokers import SimNode, one_batch


def killed_while_flushing() -> SimNode:
    node = SimNode()
    client = node.client()
    client.create("events", flush_messages=1)
    node.loop.run_for(10_000)
    partition = node.broker.partitions.find("events", 0)
    client.send_produce("events", one_batch("a"))
    assert node.loop.run_until(lambda: partition.log.log_end_offset == 1)
    assert partition.log.recovery_point == 0, "it is being flushed"
    node.kill()
    node.start()
    return node


def test_what_was_read_is_there_after_a_loss_of_power() -> None:
    node = killed_while_flushing()
    assert node.client().fetch("events", 0).records
    node.lose_power()
    node.start()
    assert node.client().fetch("events", 0).records
