"""One broker's disk is full, fails, or holds what was not written (F9, F10, F12, X26, V19).

It is broker 3's: leaders move away from it, nothing that was acknowledged is lost, and when the
disk is whole again the broker comes back with all its replicas.
"""

import errno
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.cluster_stage import Stage
from support.disk_faults import FailingDisk, SmallDisk
from support.replica_files import stored_batches
from support.requirements import leave_out
from support.wire_client import WireClient
from support.workload import now
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.elections import elect_leaders
from tidelog.records.batch import crc_is_good, walk

BROKEN = 3
LED_BY_BROKEN = [[BROKEN, 1, 2]] * 2
FAILURES = {
    "write": errno.EIO,
    "half a write": errno.ENOSPC,
    "fsync": errno.EIO,
    "new names": errno.EROFS,
}
HALVES_SECONDS = 1
TRIES_MAX = 4


def broken_broker(stage: Stage) -> BrokerProcess:
    return stage.cluster.brokers[BROKEN]


def leads_something(cluster: Cluster, topic: str) -> bool:
    indexes = cluster.tree.replicas(topic)
    return any(cluster.tree.leader(topic, index) == BROKEN for index in indexes)


def lead_again(stage: Stage) -> None:
    """Once it is in sync the broken broker leads where it is preferred."""
    stage.cluster.wait_in_sync(stage.topic)
    partitions = [TopicPartition(*key) for key in stage.workload.keys]

    def leads_all() -> bool:
        with Client(stage.cluster.bootstrap) as client:
            elect_leaders(client, "preferred", partitions)
        return all(stage.cluster.leader_id(*key) == BROKEN for key in stage.workload.keys)

    wait_until(leads_all, "it leads all of them")


def check_halted(broker: BrokerProcess) -> None:
    """S10: it has no other log dir."""
    assert broker.wait_until_ended() == 1
    assert f"all log dirs have failed: {broker.log_dir}: " in broker.words


def test_a_disk_that_fails_costs_its_broker_the_lead(
    make_stage: Callable[..., Stage], failing_disk: FailingDisk | None
) -> None:
    """F10: everything it led is led by others; after the first error nothing more is written, and
    of a batch that was written in part nothing is left."""
    if failing_disk is None:
        leave_out("there is no gcc to make the shim with: see .ci/install-clients")
    stage = make_stage(assignment=LED_BY_BROKEN)
    for what, number in FAILURES.items():
        lead_again(stage)
        try:
            failing_disk.fail(what, number)
            at = now()
            wait_until(lambda: not leads_something(stage.cluster, stage.topic), f"no {what}")
            stage.back(f"F10 {errno.errorcode[number]} on {what}", at, seconds_max=10)
            check_halted(broken_broker(stage))
        finally:
            failing_disk.work()
        broken_broker(stage).start()
    stage.check()


def test_a_disk_that_takes_half_of_what_it_is_given_is_given_the_rest(
    make_stage: Callable[..., Stage], failing_disk: FailingDisk | None
) -> None:
    """F10: a short count is not an error. A machine that is too busy may cost the broker its
    session just then, but not each time."""
    if failing_disk is None:
        leave_out("there is no gcc to make the shim with: see .ci/install-clients")
    stage = make_stage(assignment=LED_BY_BROKEN)
    assert any(leads_on(stage, failing_disk) for _ in range(TRIES_MAX))
    stage.check()


def leads_on(stage: Stage, disk: FailingDisk) -> bool:
    """Whether the broken broker does, in the same epoch, while its disk takes halves."""
    lead_again(stage)
    epoch, at = stage.epoch, now()
    try:
        disk.fail("writes that take half")
        time.sleep(HALVES_SECONDS)
        stage.paused("F10 each write takes half of what it is given", at, seconds_max=1)
    finally:
        disk.work()
    return (stage.leader, stage.epoch) == (broken_broker(stage), epoch)


def test_a_full_disk_costs_its_broker_the_lead(stage: Stage, small_disk: SmallDisk | None) -> None:
    """F9: a write that was cut short leaves no half batch."""
    if small_disk is None:
        leave_out("no small file system can be mounted here: that takes root, or sudo")
    assert leads_something(stage.cluster, stage.topic)
    small_disk.fill()
    try:
        wait_until(lambda: not leads_something(stage.cluster, stage.topic), "the disk is full")
        stage.back("F9 the disk is full", now(), seconds_max=10)
        check_halted(broken_broker(stage))
    finally:
        small_disk.free()
    broken_broker(stage).start()
    stage.check()


@pytest.mark.parametrize(("end", "where"), [("killed", "last"), ("stopped", "first")])
def test_a_flipped_bit_is_never_served_and_heals(stage: Stage, end: str, where: str) -> None:
    """F12: in a follower's segment, while it is down. It then leads, and everything is read."""
    follower, cluster, topic = stage.follower, stage.cluster, stage.topic
    if end == "killed":
        follower.kill()
    else:
        follower.stop()
    flip_a_bit(follower.log_dir, topic, 0 if where == "first" else -1)
    follower.start()
    cluster.wait_in_sync(topic)
    stage.leader.kill()
    other = next(
        broker
        for broker in cluster.brokers.values()
        if broker is not follower and broker.is_running
    )
    other.kill()
    other.start()
    what = f"F12 {end}, a bit of the {where} batch flipped, the others restarted"
    stage.back(what, now(), seconds_max=10)
    seconds = wait_until(partial(serves_all, cluster, topic), "everything is served")
    stage.tell(f"F12 everything is served after {seconds:.2f} s")
    stage.check()


def serves_all(cluster: Cluster, topic: str) -> bool:
    """Whether the leader serves the log from its beginning. While it does not, it may say so, but
    whatever it serves is whole."""
    with WireClient(cluster.leader(topic).address) as client:
        answer = client.fetch(topic, 0)
    if answer.error_code is not ErrorCode.none or not answer.records:
        return False
    data = bytes(answer.records)
    for position, header in walk(data):
        assert crc_is_good(data, position, header.size, header.crc), f"{header} is served"
    return True


def flip_a_bit(log_dir: Path, topic: str, number: int) -> None:
    """In the records of one of the stored batches, where only the CRC shows it."""
    batch = stored_batches(log_dir, topic, 0)[number]
    for path in sorted((log_dir / f"{topic}-0").glob("*.log")):
        data = bytearray(path.read_bytes())
        position = data.find(batch.data)
        if position >= 0:
            data[position + len(batch.data) - 2] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("the batch is in one of the segments")
