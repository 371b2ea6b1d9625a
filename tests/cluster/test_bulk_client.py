"""Our own client reads and writes in bulk while leaders come and go (P1, P5, I1)."""

from concurrent.futures import ThreadPoolExecutor

from support.bulk import batch_of, read_all, records_in, whole
from support.cluster_processes import Cluster
from tidelog.client.client import Client
from tidelog.client.fetching import RangeReader
from tidelog.client.writing import BatchWriter

BATCHES = 600


def test_batches_are_written_once_and_read_whole_across_changes_of_leader(
    cluster: Cluster, topic: str
) -> None:
    cluster.create(topic, partitions=2)

    def write(writer: BatchWriter, numbers: range) -> None:
        for number in numbers:
            writer.send(topic, number % 2, batch_of([b"%d" % number] * 5))
        writer.flush()

    with Client(cluster.bootstrap) as client, BatchWriter(client) as writer:
        with ThreadPoolExecutor(1) as pool:
            write(writer, range(BATCHES // 2))
            writing = pool.submit(write, writer, range(BATCHES // 2, BATCHES))
            first = cluster.leader(topic)
            first.kill()
            writing.result(60)
        first.start()
        cluster.wait_in_sync(topic)
        assert sum(count for *_, count in writer.acknowledged()) == BATCHES * 5
        reader = RangeReader(client, partition_bytes_max=2_000)
        end = BATCHES // 2 * 5
        chunks = reader.read(whole(topic, end))
        found = records_in(next(chunks))
        cluster.leader(topic).kill()
        for chunk in chunks:
            found += records_in(chunk)
        other = read_all(reader, whole(topic, end, partition=1))
    for index, records in enumerate((found, other)):
        assert [offset for offset, _ in records] == list(range(end))
        expected = [b"%d" % number for number in range(index, BATCHES, 2) for _ in range(5)]
        assert [value for _, value in records] == expected
