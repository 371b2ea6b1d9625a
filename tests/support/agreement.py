"""Whether all members of a simulated cluster know and do what stands in the tree."""

from support.members import Cluster, Member
from tidelog.base.control import PartitionState
from tidelog.cluster.image import NO_STATE, PartitionInfo, TopicInfo
from tidelog.cluster.messages import partition_state
from tidelog.cluster.topic_nodes import with_state
from tidelog.cluster.znodes import decode_state, decode_topic


def topics_in_tree(cluster: Cluster) -> dict[str, TopicInfo]:
    """Read without the code under test, but for the JSON."""
    found: dict[str, TopicInfo] = {}
    for path in cluster.paths("/brokers/topics"):
        if path.count("/") != 3:
            continue
        name = path.split("/")[3]
        node = cluster.ensemble.tree.get(path)
        topic_id, assignments = decode_topic(node.data)
        assert topic_id is not None
        partitions = []
        for number, assignment in enumerate(assignments):
            empty = PartitionInfo(
                replicas=assignment.replicas,
                adding_replicas=assignment.adding,
                removing_replicas=assignment.removing,
                isr=(),
                leader=-1,
                leader_epoch=-1,
                state_version=-1,
            )
            partitions.append(_with_state(cluster, f"{path}/partitions/{number}/state", empty))
        found[name] = TopicInfo(name=name, topic_id=topic_id, partitions=tuple(partitions))
    return found


def _with_state(cluster: Cluster, path: str, empty: PartitionInfo) -> PartitionInfo:
    """A partition that nobody could lead yet has none."""
    if not cluster.exists(path):
        return empty
    node = cluster.ensemble.tree.get(path)
    return with_state(empty, decode_state(node.data), node.stat.version)


def controllers(members: list[Member]) -> list[Member]:
    return [member for member in members if not member.is_dead and member.is_controller]


def disagreement(cluster: Cluster, members: list[Member]) -> str | None:
    """None if exactly one live member is controller, every view shows what stands in the tree,
    and every host leads and follows what it should."""
    live = [member for member in members if not member.is_dead]
    if len(controllers(live)) != 1:
        return f"{len(controllers(live))} brokers are controller"
    tree = topics_in_tree(cluster)
    (controller,) = controllers(live)
    epochs = {member.metadata.broker_id: member.metadata.broker_epoch for member in live}
    for member in live:
        image, number = member.metadata.image, member.metadata.broker_id
        if image.controller_id != controller.metadata.broker_id:
            return f"{number} takes {image.controller_id} for the controller"
        if {known: broker.epoch for known, broker in image.brokers.items()} != epochs:
            return f"{number} knows the brokers {sorted(image.brokers)}"
        shown = {name: (t.topic_id, t.partitions) for name, t in image.topics.items()}
        if shown != {name: (t.topic_id, t.partitions) for name, t in tree.items()}:
            return f"{number} sees other topics than there are"
        if member.host.states != _hosted(tree, number):
            return f"{number} leads and follows something else"
        if set(member.host.disk.replicas) != set(_hosted(tree, number)):
            return f"{number} has replicas that it should not, or lacks some"
    return None


def assert_agreed(cluster: Cluster, members: list[Member], within_ms: int = 60_000) -> None:
    cluster.loop.run_until(lambda: disagreement(cluster, members) is None, within_ms)
    assert disagreement(cluster, members) is None


def _hosted(tree: dict[str, TopicInfo], broker_id: int) -> dict[tuple[bytes, int], PartitionState]:
    return {
        (topic.topic_id, index): partition_state(index, partition)
        for topic in tree.values()
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas and partition.state_version != NO_STATE
    }
