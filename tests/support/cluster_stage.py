"""A topic of its own with clients at work on it, for one fault: what a test of the cluster does.

    stage.begin()                          the clients write and read
    stage.leader.kill()                    the fault
    stage.back("F1 kill -9 leader", now(), seconds_max=1.0)
    stage.check()

`back` prints how long it took, once the fault was there, until every partition took records
again, and by when it had to be; `check` heals the cluster and looks at everything that must hold
afterwards, whatever the fault was.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.replica_files import check_replicas, end_offset
from support.state_recorder import StateRecorder
from support.workload import Workload, now

WARM_SECONDS: Final = 0.3
IN_SYNC_SECONDS_MAX: Final = 60.0
BUSY_SECONDS: Final = 20.0
"""What a fault is given is what a cluster with a machine of its own keeps to. Here all the other
tests run beside three brokers and their clients on as little as two cores: so much more may pass,
and is told of."""


class Stage:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        tell: Callable[[str], None],
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Three partitions with three replicas each, or those that are assigned."""
        partitions = len(assignment) or 3
        self.cluster = cluster
        self.topic = topic
        self.tell = tell
        self.is_checked = False
        """Everything is well: the next test can go on from here."""
        cluster.create(topic, partitions, configs, assignment)
        self.workload = Workload(cluster.bootstrap, topic, partitions)
        self.states = StateRecorder(cluster.tree.client, topic, cluster.tree.replicas(topic))
        self.leader_known_before = self.leader
        """As it was when the clients began, for when nobody can be asked."""

    def begin(self) -> None:
        began = now()
        self.workload.start()
        self.workload.back_after(began)
        time.sleep(WARM_SECONDS)
        self.leader_known_before = self.leader

    def back(self, what: str, since: int, seconds_max: float) -> float:
        """Waits until there is service again."""
        seconds = self.workload.back_after(since, seconds_max + 2 * BUSY_SECONDS)
        self._tell_time(f"{what}: back after", seconds, seconds_max)
        return seconds

    def paused(self, what: str, since: int, seconds_max: float) -> None:
        """For what should hardly be noticed: how long any partition took nothing at most."""
        self.workload.back_after(now())
        seconds = self.workload.longest_pause(since)
        self._tell_time(f"{what}: paused for", seconds, seconds_max)

    def _tell_time(self, what: str, seconds: float, seconds_max: float) -> None:
        """What was needed and what is allowed; the first is not more than the second."""
        allowed = seconds_max + BUSY_SECONDS
        least = f"{seconds_max:.1f} s and {BUSY_SECONDS:.0f} s for other tests"
        said = f"{what} {seconds:.2f} s (at most {allowed:.1f} s: {least})"
        self.tell(said)
        assert seconds <= allowed, said

    @property
    def leader(self) -> BrokerProcess:
        """Of the first partition."""
        return self.cluster.leader(self.topic)

    @property
    def epoch(self) -> int:
        """The leader epoch of the first partition."""
        return int(self.cluster.tree.state(self.topic)["leader_epoch"])

    @property
    def follower(self) -> BrokerProcess:
        return self.cluster.follower(self.topic)

    def check(self) -> None:
        """All that was promised, and all replicas."""
        self.cluster.heal()
        self.workload.back_after(now())
        self.cluster.wait_in_sync(self.topic, IN_SYNC_SECONDS_MAX)
        self.workload.settle()
        assert not self.workload.errors, self.workload.errors[:5]
        anomalies = self.workload.anomalies()
        shown = "\n".join(str(anomaly) for anomaly in anomalies[:10])
        assert not anomalies, f"{len(anomalies)} anomalies:\n{shown}"
        self.check_replicas()
        assert self.states.count >= len(self.workload.keys)
        wrong = self.states.wrong()
        assert not wrong, wrong
        assert self.workload.acknowledged_count > 0
        self.is_checked = True

    def check_replicas(self) -> None:
        """Byte by byte, once all have caught up."""
        for (topic, partition), end in self.workload.ends().items():
            replicas = self.cluster.tree.replicas(topic)[partition]
            dirs = {broker_id: self.cluster.brokers[broker_id].log_dir for broker_id in replicas}
            wait_until(
                partial(_all_reach, list(dirs.values()), topic, partition, end),
                f"all replicas of {topic}-{partition} reach {end}",
            )
            wrong = check_replicas(dirs, topic, partition, end)
            assert not wrong, wrong


def _all_reach(log_dirs: list[Path], topic: str, partition: int, end: int) -> bool:
    return all(end_offset(log_dir, topic, partition) >= end for log_dir in log_dirs)
