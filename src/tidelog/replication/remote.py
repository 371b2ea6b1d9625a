"""What a leader knows of one follower, from nothing but its fetches.

A follower counts only from its first fetch in the leader's epoch on; a follower that restarted is
another incarnation, of which nothing is known yet. When it was last *caught up* decides
whether it is in sync (I1): a fetch that reaches the leader's log end says now, one that reaches
the log end of the fetch before says then.
"""

NO_OFFSET = -1
NEVER = -1


class Remote:
    __slots__ = (
        "_leader_end",
        "broker_epoch",
        "has_fetched",
        "last_caught_up_ms",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NEVER
        self.has_fetched = False
        """Whether it has fetched in the current leader epoch, in its current incarnation."""
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = last_caught_up_ms
        self._leader_end = NO_OFFSET

    def fetched(self, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.has_fetched and offset >= self._leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.has_fetched = True
        self.last_fetch_ms = now_ms
        self._leader_end = leader_end

    def is_in_sync(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it is at the log end, or was caught up not too long ago (I1)."""
        return self.log_end_offset >= leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max

    def restart(self, broker_epoch: int) -> None:
        """Another incarnation fetches: what the one before had may be lost."""
        self.broker_epoch = broker_epoch
        self.log_end_offset = self.log_start_offset = self._leader_end = NO_OFFSET
        self.has_fetched = False
