"""The small files of one broker have rotted while it was down: checkpoints, leader epochs, indexes,
snapshots, metadata (F12). What is rotten in a segment is in `test_broken_disks`.

It comes back, catches up, and leads; nothing that was acknowledged is lost, and the others keep
what they have. The long form draws other damage in each round:

    pytest tests/cluster/test_broken_files.py --rounds 20 --timeout 0
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

from support.cluster_processes import BrokerProcess
from support.cluster_stage import Stage
from support.file_damage import change_numbers, small_files, spoil
from support.workload import now
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.elections import elect_leaders

VICTIM = 2
LED_BY_VICTIM = [[VICTIM, 3, 1]] * 2
SMALL_SEGMENTS = {"segment.bytes": "20000"}


def test_a_broker_whose_small_files_have_rotted_leads_without_harm(
    make_stage: Callable[..., Stage], seed: int, rounds: int
) -> None:
    stage = make_stage(assignment=LED_BY_VICTIM, configs=SMALL_SEGMENTS)
    random = Random(seed)
    for _ in range(rounds):
        damaged = while_down(stage, BrokerProcess.stop, lambda path: numbers(path, random))
        stage.back(f"F12 other numbers in {damaged} files, it leads", now(), seconds_max=10)
        end = random.choice([BrokerProcess.stop, BrokerProcess.kill])
        damaged = while_down(stage, end, lambda path: bool(spoil(path, random)))
        stage.back(f"F12 damage in {damaged} files, it leads", now(), seconds_max=10)
    stage.check()


def numbers(path: Path, random: Random) -> bool:
    return path.suffix == "" and change_numbers(path, random)


def while_down(
    stage: Stage, end: Callable[[BrokerProcess], None], damage: Callable[[Path], bool]
) -> int:
    """Ends it and starts it again, with damage to all files that can have it; how many had. Then it
    leads all partitions."""
    victim, cluster = stage.cluster.brokers[VICTIM], stage.cluster
    end(victim)
    damaged = sum(map(damage, small_files(victim.log_dir, stage.topic)))
    victim.start()
    cluster.wait_in_sync(stage.topic)
    partitions = [TopicPartition(*key) for key in stage.workload.keys]
    with Client(cluster.bootstrap) as client:
        elect_leaders(client, "preferred", partitions)
    assert all(cluster.leader_id(*key) == VICTIM for key in stage.workload.keys)
    return damaged
