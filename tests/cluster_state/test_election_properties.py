"""What holds of every decision of the controller, whatever it finds."""

from dataclasses import replace

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tidelog.cluster.elections import (
    Known,
    Report,
    Situation,
    TopicRules,
    is_current,
    preferred_leader,
    unclean_leader,
    wanted_state,
)
from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo

BROKERS = range(5)
EPOCHS = st.integers(1, 3)
SOME = st.lists(st.sampled_from(BROKERS), unique=True).map(tuple)
SOME_FROZEN = SOME.map(frozenset)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionInfo:
    replicas = draw(st.lists(st.sampled_from(BROKERS), min_size=1, unique=True).map(tuple))
    if draw(st.integers(0, 9)) == 0:
        return PartitionInfo(
            replicas=replicas,
            isr=(),
            leader=NO_LEADER,
            leader_epoch=NO_STATE,
            state_version=NO_STATE,
        )
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True).map(tuple))
    others = [replica for replica in replicas if replica not in isr]
    elr = draw(st.lists(st.sampled_from(others), unique=True).map(tuple)) if others else ()
    recorded = draw(st.dictionaries(st.sampled_from((*isr, *elr)), EPOCHS))
    return PartitionInfo(
        replicas=replicas,
        isr=isr,
        elr=elr,
        leader=draw(st.sampled_from((NO_LEADER, *isr))),
        leader_epoch=draw(st.integers(0, 5)),
        state_version=draw(st.integers(0, 5)),
        controller_epoch=1,
        broker_epochs=recorded,
    )


SITUATIONS = st.builds(
    Situation,
    live=st.dictionaries(st.sampled_from(BROKERS), EPOCHS),
    controller_epoch=st.just(2),
    shutting_down=SOME_FROZEN,
    strategy=st.sampled_from(("strict", "first-isr")),
)
RULES = st.builds(TopicRules, min_isr=st.integers(1, 6), unclean=st.booleans())
REPORTS = st.builds(
    Report,
    leader_epoch=st.integers(0, 5),
    broker_epoch=EPOCHS,
    last_epoch=st.integers(-1, 3),
    log_end_offset=st.integers(0, 9),
)
KNOWN = st.builds(
    Known,
    offline=SOME_FROZEN,
    reports=st.dictionaries(st.sampled_from(BROKERS), st.none() | REPORTS),
)


def strictly(situation: Situation) -> Situation:
    return replace(situation, strategy="strict")


def check_legal(before: PartitionInfo, after: PartitionInfo) -> None:
    """V9, V10, and that every member counted from now on has its epoch on record."""
    assert after.leader_epoch == before.leader_epoch + 1
    assert (after.state_version, after.controller_epoch) == (before.state_version, 2)
    assert after.replicas == before.replicas
    assert after.isr
    assert set(after.isr) <= set(after.replicas)
    assert not set(after.isr) & set(after.elr)
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert set(after.broker_epochs) <= {*after.isr, *after.elr}


@settings(max_examples=150, deadline=None)
@given(partitions(), SITUATIONS, RULES, KNOWN)
def test_what_was_decided_is_wanted_no_further(
    partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
) -> None:
    """Level-triggered: a decision is the same however often and why ever it is asked for."""
    decision = wanted_state(partition, situation, rules, known)
    assert decision == wanted_state(partition, situation, rules, known)
    assert decision.state is None or decision.ask == ()
    if decision.state is not None:
        # Reports are of the epoch before: none is there yet of the one that begins.
        again = wanted_state(decision.state, situation, rules, Known(offline=known.offline))
        if decision.state.state_version != NO_STATE:
            assert again.state is None


@settings(max_examples=150, deadline=None)
@given(partitions(), SITUATIONS, RULES, KNOWN)
def test_every_decision_is_a_legal_state(
    partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
) -> None:
    """V9, V10."""
    preferred = preferred_leader(partition, situation, known)
    if preferred is not None:
        check_legal(partition, preferred)
        assert is_current(preferred, preferred.leader, situation)
        assert preferred.isr == partition.isr
    wanted = wanted_state(partition, situation, rules, known).state
    for after in (wanted, unclean_leader(partition, situation, known)):
        if after is not None:
            check_legal(partition, after)
        if after is not None and after.leader != NO_LEADER:
            assert after.leader not in known.offline
            assert all(is_current(after, member, situation) for member in after.isr)


@settings(max_examples=150, deadline=None)
@given(partitions(), SITUATIONS, RULES, KNOWN)
def test_only_a_current_member_of_the_isr_follows_a_leader(
    partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
) -> None:
    """D9, X18, X19: the ordinary way never leads to another."""
    assume(partition.isr)
    if partition.leader == NO_LEADER:
        partition = replace(partition, leader=partition.isr[0])
    current = [member for member in partition.isr if is_current(partition, member, situation)]
    after = wanted_state(partition, situation, rules, known).state
    if after is not None and set(current) - known.offline:
        assert after.leader in current
        assert set(after.isr) <= set(current)


@settings(max_examples=150, deadline=None)
@given(partitions(), SITUATIONS.map(strictly), st.integers(1, 6), KNOWN)
def test_a_strict_recovery_has_heard_of_enough_members(
    partition: PartitionInfo, situation: Situation, min_isr: int, known: Known
) -> None:
    """D10: the min ISR, or all members if they are fewer."""
    assume(partition.isr)
    partition = replace(partition, leader=NO_LEADER)
    members = {*partition.isr, *partition.elr}
    needed = min(min_isr, len(partition.replicas), len(members))
    back = {m for m in members if m in situation.live and m not in known.offline}
    decision = wanted_state(partition, situation, TopicRules(min_isr=min_isr), known)
    assert set(decision.ask) <= back
    if len(back) < needed:
        assert (decision.state, decision.ask) == (None, ())
    elif decision.state is None:
        assert decision.ask
    else:
        heard = {
            member: (report.last_epoch, report.log_end_offset)
            for member, report in known.reports.items()
            if report is not None
            and member in back
            and report.leader_epoch == partition.leader_epoch
            and report.broker_epoch == situation.live[member]
        }
        event(f"{len(heard)} of {len(back)} heard")
        winner = decision.state.leader
        assert decision.state.isr == (winner,)
        assert back == {winner} or len(heard) >= needed
        assert back == {winner} or heard[winner] == max(heard.values())
