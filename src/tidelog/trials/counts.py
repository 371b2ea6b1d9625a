"""What happened in explored histories, in numbers: an explorer in which nothing happens finds
nothing."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    histories: int = 0
    operations: int = 0
    acknowledged: int = 0
    reads: int = 0
    faults: int = 0
    elections: int = 0
    truncations: int = 0
    shrinks: int = 0
    expands: int = 0
    power_losses: int = 0
    """Those that cost a log its end."""
    recoveries: int = 0
    """Of partitions that nobody led."""
    unclean_elections: int = 0
    records_given_up: int = 0
    """Those that were acknowledged and are lost with an unclean election."""
    topics_made_again: int = 0
    """Under the name of one that was deleted."""
    reassignments_finished: int = 0
    reassignments_cancelled: int = 0
    """Those that went back to the replicas there were before."""
    log_starts_moved: int = 0
    logs_begun_anew: int = 0
    """By followers that ended below their leader's start."""
    coordinator_changes: int = 0
    rebalances: int = 0
    """Members that were told what to read."""
    generations: int = 0
    commits: int = 0
    """Of offsets, that were answered."""
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_timed_out: int = 0
    transactions_fenced: int = 0
    """Clients that were told that their id is another's."""
    virtual_ms: int = 0

    def add(self, other: "Counts") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
