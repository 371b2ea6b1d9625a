"""Where a query goes on after a batch, given what has become of its topics meanwhile."""

from tidelog.base.ids import TopicPartition
from tidelog.spark.logs import Logs
from tidelog.spark.losses import Losses
from tidelog.spark.offsets import Positions, TopicOffsets, each_partition, with_offsets

Found = dict[TopicPartition, int]


def carry_on(
    ended: Positions, latest: Positions, logs: Logs, losses: Losses
) -> tuple[Found, Positions]:
    """Where partitions begin, as far as that had to be asked for; and the start of the next batch,
    for all partitions that there are."""
    known = _surviving(ended, latest, losses)
    ends = dict(each_partition(latest))
    # A log that has nothing new cannot have lost anything that is still to be read.
    begins = logs.earliest([one for one, end in ends.items() if known.get(one) != end])
    start: Found = {}
    for one, end in ends.items():
        if one not in known:
            start[one] = _of_new(one, begins[one], ended, latest, losses)
        else:
            start[one] = _of_known(one, known[one], (begins.get(one, end), end), losses)
    return begins, with_offsets(latest, start)


def _surviving(ended: Positions, latest: Positions, losses: Losses) -> Found:
    """Offsets of partitions that are still those they were."""
    known: Found = {}
    for topic, was in ended.items():
        now = latest.get(topic)
        if now is None:
            losses.report(f"topic {topic} is gone: {_read_so_far(was)}")
        elif _is_another(was, now):
            losses.report(
                f"topic {topic} was deleted and made again, its id was {was.topic_id} and is now "
                f"{now.topic_id}: {_read_so_far(was)}"
            )
        else:
            for partition, offset in was.offsets.items():
                if partition in now.offsets:
                    known[TopicPartition(topic, partition)] = offset
                else:
                    losses.report(f"{topic}-{partition} is gone: it was read up to {offset}")
    return known


def _is_another(was: TopicOffsets, now: TopicOffsets) -> bool:
    return was.topic_id is not None and now.topic_id is not None and was.topic_id != now.topic_id


def _read_so_far(was: TopicOffsets) -> str:
    places = ", ".join(f"{one} up to {offset}" for one, offset in sorted(was.offsets.items()))
    return f"of its partitions were read {places}"


def _of_new(
    one: TopicPartition, begin: int, ended: Positions, latest: Positions, losses: Losses
) -> int:
    was = ended.get(one.topic)
    if begin > 0 and (was is None or not _is_another(was, latest[one.topic])):
        losses.report(f"{one} is new to the query: its offsets 0 to {begin - 1} are gone already")
    return begin


def _of_known(one: TopicPartition, at: int, there: tuple[int, int], losses: Losses) -> int:
    begin, end = there
    if at > end:
        losses.report(f"{one} was read up to offset {at}, and now ends at {end}: it was cut off")
        return end
    if at < begin:
        losses.report(f"{one}: offsets {at} to {begin - 1} are gone: the log begins at {begin}")
        return begin
    return at
