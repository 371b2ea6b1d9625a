"""Where reading begins or ends, looked up: offsets of every partition, from what the options say.

Partitions named in an option must be exactly those that are read, so that none is begun at a place
nobody chose.
"""

from collections.abc import Mapping

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.client.marks import EARLIEST, LATEST
from tidelog.spark.bounds import ENDINGS, Bound, Committed, Offsets, Place, Times
from tidelog.spark.logs import NO_RECORD, Logs
from tidelog.spark.losses import Losses
from tidelog.spark.offsets import Positions, each_partition, with_offsets
from tidelog.spark.options import Subscription

Found = dict[TopicPartition, int]


def check_topics(subscription: Subscription, latest: Positions) -> None:
    """A query that begins must find all that it names."""
    wanted = subscription.assigned or dict.fromkeys(subscription.topics or (), ())
    option = "assign" if subscription.assigned else "subscribe"
    for topic, partitions in wanted.items():
        if topic not in latest:
            raise BadValue(f"option {option}: there is no topic {topic}")
        missing = [one for one in partitions if one not in latest[topic].offsets]
        if missing:
            raise BadValue(f"option {option}: {topic} has no partition {missing[0]}")


def resolve(bound: Bound, logs: Logs, latest: Positions, losses: Losses) -> Positions:
    match bound:
        case Place(mark=mark):
            if mark == LATEST:
                return latest
            return with_offsets(latest, logs.earliest([one for one, _ in each_partition(latest)]))
        case Offsets():
            return with_offsets(latest, _by_offsets(bound, logs, latest, losses))
        case Committed(group_id=group_id):
            return with_offsets(latest, _by_group(group_id, logs, latest, losses))
        case Times():
            return with_offsets(latest, _by_times(bound, logs, latest))


def _by_offsets(bound: Offsets, logs: Logs, latest: Positions, losses: Losses) -> Found:
    wanted = _exactly(bound.option, bound.offsets, latest)
    there = latest if bound.option in ENDINGS else _reached(wanted, logs, latest)
    return _clamped(wanted, bound.option, logs, there, losses)


def _by_group(group_id: str, logs: Logs, latest: Positions, losses: Losses) -> Found:
    committed = logs.committed(group_id)
    wanted = {one: committed.get(one, EARLIEST) for one, _ in each_partition(latest)}
    there = _reached(wanted, logs, latest)
    return _clamped(wanted, f"group {group_id}", logs, there, losses)


def _reached(wanted: Found, logs: Logs, latest: Positions) -> Positions:
    """Who comes back to where it was may have come there with another isolation level, or by what
    a newer leader said."""
    ends = dict(each_partition(latest))
    beyond = {one: at for one, at in wanted.items() if at > ends[one]}
    if not beyond:
        return latest
    again = dict(each_partition(logs.latest(with_offsets(latest, beyond))))
    return with_offsets(latest, again)


def _clamped(wanted: Found, whose: str, logs: Logs, latest: Positions, losses: Losses) -> Found:
    """What is not there any more, or not yet, is a loss."""
    begins = logs.earliest(wanted)
    found = {}
    for one, end in each_partition(latest):
        begin = begins[one]
        place = {EARLIEST: begin, LATEST: end}.get(wanted[one], wanted[one])
        if not begin <= place <= end:
            losses.report(f"{one}: offset {place} of {whose} is not there, only {begin} to {end}")
        found[one] = min(max(place, begin), end)
    return found


def _by_times(bound: Times, logs: Logs, latest: Positions) -> Found:
    ends = dict(each_partition(latest))
    if bound.for_each is None:
        times = dict.fromkeys(ends, bound.for_all or 0)
    else:
        times = _exactly(bound.option, bound.for_each, latest)
    found = logs.since(times)
    for one, offset in found.items():
        if offset == NO_RECORD and not bound.latest_if_none:
            raise BadValue(
                f"option {bound.option}: {one} has no record since {times[one]}; to begin at its "
                "end then, set startingOffsetsByTimestampStrategy to latest"
            )
    return {one: ends[one] if at == NO_RECORD else at for one, at in found.items()}


def _exactly(option: str, given: Mapping[str, Mapping[int, int]], latest: Positions) -> Found:
    wanted = {
        TopicPartition(topic, partition): number
        for topic, numbers in given.items()
        for partition, number in numbers.items()
    }
    there = {one for one, _ in each_partition(latest)}
    for trouble, ones in (
        ("has nothing for", there - wanted.keys()),
        ("names what is not read:", wanted.keys() - there),
    ):
        if ones:
            listed = ", ".join(map(str, sorted(ones)))
            raise BadValue(
                f"option {option} {trouble} {listed}; all partitions that are read must be in it"
            )
    return wanted
