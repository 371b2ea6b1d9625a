"""Clusters that lose a broker and get it back: how long nobody answers, and how fast it catches up.

The clock runs from just before the kill to the answer without an error to a record that was written
with acks=all, by a prober that asks for the leader and tries again as clients do.
"""

import time
from statistics import median

from bench.load import bare_servers
from bench.load.bare_replication import bare_follower
from bench.load.cluster_scenarios import OURS, SECONDS_MAX, Effort, Sides, judged
from bench.load.cluster_side import ClusterSide
from bench.load.contest import Row, row, tell
from bench.load.frames import FETCH, Topic, batch, fetch
from bench.load.generator import Stream
from bench.load.machine import bare_server
from bench.load.prober import Prober
from bench.load.target import CLIENTS
from bench.load.used_memory import held_memory

PAUSE_SECONDS = 0.005
SESSION_SECONDS, TICK_SECONDS, GRACE_SECONDS = 18.0, 0.25, 1.0
"""What ZooKeeper and a broker agree on with default settings."""
FETCH_BYTES, CATCH_UP_BATCH = 1 << 20, 65_536
CATCH_UP_MULTIPLE = 3
"""Of the megabytes of other scenarios: a follower takes a while to reach its speed."""
FETCH_SECONDS = 2.0
BARE_BATCHES, BARE_THREADS = (4, 8, 16), (1, 2)


def recovery(
    side: ClusterSide, topic: Topic, victim: int, wanted: set[int], with_guard: bool = False
) -> float:
    """Kills a leader and brings it back: seconds until all those partitions took a record."""
    prober = Prober(side, topic)
    prober.write(wanted)
    began = time.monotonic()
    side.cluster.kill_node(victim, with_guard=with_guard)
    try:
        prober.write(wanted)
        took = time.monotonic() - began
    finally:
        prober.close()
        side.cluster.start_node(victim)
        side.cluster.await_members()
    side.await_in_sync(topic, len(side.metadata(topic).places))
    return took


def failover(sides: Sides, effort: Effort) -> list[Row]:
    """Each broker leads one of three partitions; ours says who its controller is."""
    tell("kill -9 of a leader")
    found: list[Row] = []
    for side in judged(sides, effort):
        controller = side.metadata().controller
        victims = [number for number in side.cluster.nodes if number != controller][: effort.kills]
        plain = [killed(side, victim) for victim in victims]
        is_ours = side.name == OURS
        found.append(_killed_row(side, "a leader", plain, "<= 1" if is_ours else ""))
        if is_ours:
            both = killed(side, side.metadata().controller)
            found.append(_killed_row(side, "the leader and controller", [both], "<= 1"))
        elif effort.kills > 1:
            found.append(_killed_row(side, "another leader", [killed(side, controller)], ""))
    return found


def machine_death(sides: Sides, _: Effort) -> list[Row]:
    """With its guard gone too, nothing but the session's timeout tells of a broker's death."""
    tell("kill -9 of a leader and its guard")
    limit = SESSION_SECONDS + 2 * TICK_SECONDS + GRACE_SECONDS
    found = []
    for side in sides:
        if side.cluster.coordination_pids:
            victim = next(n for n in side.cluster.nodes if n != side.metadata().controller)
            took = killed(side, victim, with_guard=True)
            found.append(_killed_row(side, "a leader and its guard", [took], f"<= {limit}"))
    return found


def killed(side: ClusterSide, victim: int, with_guard: bool = False) -> float:
    """Seconds to the next record for a partition that the victim led."""
    topic = side.new_topic(len(side.cluster.nodes))
    led = side.metadata(topic).led_by(victim)
    return recovery(side, topic, victim, set(led[:1]), with_guard)


def _killed_row(side: ClusterSide, who: str, took: list[float], target: str) -> Row:
    told = "" if len(took) == 1 else f" (slowest of {len(took)}, median {median(took):.3g})"
    name = f"{side.name}: kill -9 of {who} to the next acknowledged record"
    return row(name, max(took), f"s{told}", target)


def catch_up(sides: Sides, effort: Effort) -> list[Row]:
    """A follower that was away, against one consumer with one connection that throws all away."""
    tell("a follower that returns")
    found = [bare_catch_up(side, effort) for side in sides if side.name == OURS]
    for side in judged(sides, effort):
        taken = [caught_up(side, effort.megabytes * CATCH_UP_MULTIPLE) for _ in range(effort.kills)]
        speeds = f"{median(s for s, _ in taken):.0f} of {median(f for _, f in taken):.0f}"
        found.append(
            row(
                f"{side.name}: a returning follower, of a consumer's speed",
                median(speed / fetched for speed, fetched in taken),
                f"x ({speeds} MB/s)",
                ">= 0.8" if side.name == OURS else "",
            )
        )
    return found


def bare_catch_up(side: ClusterSide, effort: Effort) -> Row:
    """What the machine has room for: the best of bare followers, of a bare server's consumer."""
    path, written = side.cluster.folder / "bare", side.cluster.folder / "bare-written"
    shapes = [(batches, threads) for batches in BARE_BATCHES for threads in BARE_THREADS]
    with bare_server("fetch", path) as (_, port):
        bare_follower(port, written, shapes[0])
        pairs = [
            (
                bare_consumer(side, port),
                {one: bare_follower(port, written, one).speed for one in shapes},
            )
            for _ in range(effort.kills)
        ]
    consumer = median(speed for speed, _ in pairs)
    speeds = {one: median(speed[one] for _, speed in pairs) for one in shapes}
    batches, threads = best = max(speeds, key=lambda one: speeds[one])
    how = f"pieces of {batches} batches, {threads} thread{'s' * (threads > 1)}"
    return row(
        "a bare follower, of a bare consumer's speed",
        speeds[best] / consumer,
        f"x ({speeds[best]:.0f} of {consumer:.0f} MB/s, {how})",
    )


def bare_consumer(side: ClusterSide, port: int) -> float:
    version = CLIENTS["java"][FETCH]
    frame = fetch(bare_servers.TOPIC, 1, bare_servers.FETCH_BYTES, version)
    stream = Stream(name="bare", frames=[frame], follow=True, address=("127.0.0.1", port))
    return side.run([stream], FETCH_SECONDS)[0].speed


def caught_up(side: ClusterSide, megabytes: float) -> tuple[float, float]:
    """Its speed, and a consumer's, taken before and after, in MB/s."""
    with side.topic(1) as topic:
        found = side.metadata(topic)
        leader = found.places[0].leader
        away = next(n for n in side.cluster.nodes if n not in (leader, found.controller))
        side.cluster.stop_node(away)
        side.wait(
            lambda: away not in side.metadata(topic).places[0].in_sync, "the ISR does not shrink"
        )
        frames = side.frames(topic, batch(1000, CATCH_UP_BATCH))
        side.load(
            frames, Stream(name="fill", frames=[], in_flight=5, megabytes=megabytes), SECONDS_MAX
        )
        before = fetch_speed(side, topic, leader)
        speed = follow_speed(side, topic, away, leader)
        side.cluster.await_members()
        side.await_in_sync(topic, 1)
        return speed, median([before, fetch_speed(side, topic, leader)])


def fetch_speed(side: ClusterSide, topic: Topic, leader: int) -> float:
    with side.asking(leader) as target:
        frame = fetch(topic, 1, FETCH_BYTES, target.versions[FETCH])
    address = side.cluster.nodes[leader].address
    stream = Stream(name="consume", frames=[frame], follow=True, address=address)
    return side.run([stream], FETCH_SECONDS)[0].speed


def follow_speed(side: ClusterSide, topic: Topic, away: int, leader: int) -> float:
    """From when its log first grows until it is as long as the leader's."""
    begins_at, whole = size_of(side, topic, away), size_of(side, topic, leader)
    with held_memory(side.cluster.folder, whole / 1e6):
        side.cluster.start_node(away)
        side.wait(
            lambda: size_of(side, topic, away) > begins_at, "it fetches nothing", PAUSE_SECONDS
        )
    began, from_bytes = time.monotonic(), size_of(side, topic, away)
    side.wait(lambda: size_of(side, topic, away) >= whole, "it is still behind", PAUSE_SECONDS)
    return (whole - from_bytes) / 1e6 / (time.monotonic() - began)


def size_of(side: ClusterSide, topic: Topic, node: int) -> int:
    folder = side.cluster.nodes[node].logs / f"{topic.name}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))
