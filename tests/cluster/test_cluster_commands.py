"""`tidelog reassign` and `tidelog elect-leaders` with replicas that really move (T3, E4)."""

import json

from typer.testing import CliRunner

from support.cluster_processes import ZOOKEEPER, Cluster, wait_until
from support.link_proxy import Rule
from support.plain_clients import acknowledge, read
from tidelog.cli.main import app

VALUES = [f"{number} " * 500 for number in range(400)]
SLOW, QUICK = "20000", "50000000"
"""Bytes a second: the first takes half a minute, which is nobody's to wait for."""
LATE_S = 0.7


def test_replicas_are_moved_by_command(cluster: Cluster, topic: str) -> None:
    cluster.create(topic, assignment=[[1, 2]])
    acknowledge(cluster.bootstrap, topic, VALUES)
    limited = ("execute", f"{topic}:0", "--replicas", "3,2", "--throttle")

    said = reassign(cluster, *limited, SLOW)
    assert f"The inter-broker throttle limit was set to {SLOW} B/s" in said
    assert said.splitlines()[-1] == f"Successfully started partition reassignments for {topic}-0"
    (shown,) = json.loads(reassign(cluster, "list", "--json"))
    assert (shown["partition"], shown["adding"], shown["removing"]) == (0, [3], [1])
    wait_for_throttles(cluster, topic, 2)
    in_progress = f"Reassignment of partition {topic}-0 is still in progress"
    said = reassign(cluster, "verify", topic)
    assert in_progress in said
    assert "Clearing" not in said, "they are needed yet"

    said = reassign(cluster, "cancel", topic)
    assert said.splitlines() == [
        "Clearing broker-level throttles on brokers 1,2,3",
        f"Clearing topic-level throttles on topics {topic}",
        f"Successfully cancelled partition reassignments for {topic}-0",
    ]
    assert sorted(cluster.tree.replicas(topic)[0]) == [1, 2]
    wait_for_throttles(cluster, topic, 0)
    assert reassign(cluster, "list") == "No partition reassignments found.\n"

    cancel_before_it_is_heard_of(cluster, topic, [*limited, SLOW])

    reassign(cluster, *limited, QUICK)
    assert reassign(cluster, "verify", f"{topic}:0", "--wait").splitlines() == [
        "Status of partition reassignment:",
        f"Reassignment of partition {topic}-0 is completed.",
        "Clearing broker-level throttles on brokers 1,2,3",
        f"Clearing topic-level throttles on topics {topic}",
    ]
    wait_for_throttles(cluster, topic, 0)
    assert cluster.tree.replicas(topic)[0] == [3, 2]
    assert read(cluster.bootstrap, topic) == VALUES
    elect_the_preferred(cluster, topic)


def cancel_before_it_is_heard_of(cluster: Cluster, topic: str, execute: list[str]) -> None:
    """Who is asked does not know yet that there is a limit, and it goes all the same."""
    controller = cluster.controller()
    late = next(broker for broker in cluster.brokers.values() if broker is not controller)
    cluster.links.rule(ZOOKEEPER, late.name, Rule(delay_s=LATE_S))
    reassign(cluster, *execute)
    assert limits_in_tree(cluster, topic)
    run_at(late.address, "reassign", "cancel", topic)
    assert limits_in_tree(cluster, topic) == []
    cluster.links.heal()


def elect_the_preferred(cluster: Cluster, topic: str) -> None:
    """The same replicas in another order: who is first now does not lead by that."""
    cluster.wait_in_sync(topic)
    leader = cluster.leader_id(topic)
    preferred = 5 - leader
    reassign(cluster, "execute", f"{topic}:0", "--replicas", f"{preferred},{leader}")
    wait_until(lambda: cluster.tree.replicas(topic)[0] == [preferred, leader], "it is done")
    assert cluster.leader_id(topic) == leader
    said = run(cluster, "elect-leaders", topic)
    done = f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    assert said == done
    assert cluster.leader_id(topic) == preferred


def reassign(cluster: Cluster, *arguments: str) -> str:
    return run(cluster, "reassign", *arguments)


def run(cluster: Cluster, *arguments: str) -> str:
    return run_at(cluster.bootstrap, *arguments)


def run_at(address: str, *arguments: str) -> str:
    where = ("--bootstrap-server", address)
    ended = CliRunner().invoke(app, [*arguments, *where], prog_name="tidelog")
    assert (ended.exit_code, ended.stderr) == (0, ""), ended.output
    return ended.stdout


def wait_for_throttles(cluster: Cluster, topic: str, count: int) -> None:
    """Any broker may be asked, and hears of a change a moment later."""
    wait_until(lambda: set(throttles(cluster, topic).values()) == {count}, f"{count} settings each")


def limits_in_tree(cluster: Cluster, topic: str) -> list[str]:
    places = [f"topics/{topic}", *(f"brokers/{broker_id}" for broker_id in cluster.brokers)]
    found = [cluster.tree.get(f"/config/{place}").get("config", {}) for place in places]
    return [name for settings in found for name in settings if "replication.throttled" in name]


def throttles(cluster: Cluster, topic: str) -> dict[str, int]:
    """How many settings limit the speed, of the topic and of each broker."""
    places = {"topic": ("topic", topic)} | {str(b): ("broker", str(b)) for b in cluster.brokers}
    return {
        name: run(cluster, "configs", "describe", *place).count("replication.throttled")
        for name, place in places.items()
    }
