"""What one history is like: drawn from its seed, so that no two histories are alike.

Every knob is drawn by itself and every kind of fault may be left out: histories in which one
thing happens a lot find what histories with a bit of everything do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeVar

OPERATIONS_MIN: Final = 200
FAULTS_MIN: Final = 3

Item = TypeVar("Item")
Unclean = Literal["never", "setting", "asked"]
UNCLEAN: Final[tuple[Unclean, ...]] = (*2 * ("never",), *2 * ("setting",), "asked")


class Draws(Protocol):
    """A stream of random numbers, as `world.sim.choices` gives them."""

    def random(self) -> float: ...

    def randint(self, a: int, b: int, /) -> int: ...

    def choice(self, items: Sequence[Item], /) -> Item: ...


FAULT_KINDS: Final = (
    "process crash",
    "machine crash",
    "all machines crash",
    "set of a partition crashes",
    "pause",
    "cut",
    "one-way cut",
    "isolation",
    "session expiry",
    "coordination loss",
    "broken connections",
    "slow link",
    "late coordination",
    "clean restart",
    "preferred leaders",
    "controller deposed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    brokers: int
    partitions: int
    replication_factor: int
    min_isr: int
    writers: int
    members: int
    """Of a group that reads all partitions; none, and there is no group."""
    transactors: int
    """Clients with transactions; none, and there are no transactions."""
    newer_transactions: bool
    """Whether leaders add partitions to them, and every end raises the epoch."""
    readers: int
    duration_ms: int
    """How long faults happen, at least."""
    fault_gap_ms: int
    """From one fault to the next, on average."""
    fault_kinds: tuple[str, ...]
    down_ms_max: int
    session_timeout_ms: int
    lag_ms_max: int
    delay_ms_max: int
    fetch_records_max: int
    fetch_wait_ms: int
    request_timeout_ms: int
    think_ms_max: int
    sync_gap_ms: int
    """From one fsync of a broker's logs to the next, on average."""
    late_requests: float
    """How often a request that was under way when its connection broke is served all the same."""
    is_new: bool
    """Whether the brokers are the first that use the ensemble."""
    guarded: bool
    """Whether the session of a process that died ends at once."""
    move_gap_ms: int
    """From one wish for other replicas to the next, on average; 0, and nobody moves any."""
    delete_gap_ms: int
    """The same for records to be deleted."""
    recreate_gap_ms: int
    """From when the topic is made to when it is deleted and made again; 0, and it never is."""
    unclean: Unclean
    """Whether any replica may lead where nobody else can: never, or always, or if it is asked."""


def draw_options(draws: Draws) -> Options:
    brokers = draws.choice((3, 3, 3, 4, 5))
    factor = draws.choice((2, 3, 3, 3))
    timeout_ms = draws.choice((400, 1_000, 2_000))
    kinds = tuple(kind for kind in FAULT_KINDS if draws.random() < 0.6)
    writers, readers = draws.randint(3, 6), draws.randint(1, 3)
    duration_ms = draws.choice((1_000, 1_700, 3_000))
    partitions = draws.choice((1, 1, 2, 2, 3, 4))
    late_requests = draws.choice((0.0, 0.5, 0.9))
    members, transactors = draws.choice((*5 * [(0, 0)], (2, 0), (3, 0), (0, 3), (0, 4)))
    committed_readers = partitions if transactors else 0
    clients = writers + readers + members + transactors + committed_readers
    fault_gap_ms = draws.choice((70, 150, 300, 600))
    # Faults that are far apart take longer to be enough.
    lasts_ms = max(duration_ms, FAULTS_MIN * fault_gap_ms)
    is_plain = not members and not transactors
    drawn = Options(
        brokers=brokers,
        partitions=partitions,
        replication_factor=factor,
        min_isr=draws.choice((1, 2, 2, 2)),
        writers=writers,
        readers=readers,
        duration_ms=duration_ms,
        fault_gap_ms=fault_gap_ms,
        fault_kinds=kinds if len(kinds) > 2 else FAULT_KINDS,
        down_ms_max=draws.choice((50, 500, 1_500)),
        session_timeout_ms=draws.choice((200, 500, 1_000, 3_000)),
        lag_ms_max=draws.choice((200, 500, 500, 1_000, 4_000)),
        delay_ms_max=draws.choice((2, 5, 20)),
        fetch_records_max=draws.choice((1, 3, 1_000)),
        fetch_wait_ms=min(timeout_ms // 2, draws.choice((100, 300, 800))),
        request_timeout_ms=timeout_ms,
        think_ms_max=7 * lasts_ms * clients // (5 * OPERATIONS_MIN),
        sync_gap_ms=draws.choice((100, 300, 2_000)),
        late_requests=late_requests,
        guarded=draws.random() < 0.5,
        is_new=draws.random() < 0.2,
        members=members,
        transactors=transactors,
        newer_transactions=late_requests > 0 or draws.random() < 0.3,
        move_gap_ms=draws.choice((0, 0, 0, 100, 300)),
        # What a transaction has written is not deleted here.
        delete_gap_ms=0 if transactors else draws.choice((0, 0, 100, 300)),
        # What plays internal topics is of the same topic here: they are not led uncleanly, and not
        # deleted.
        unclean=draws.choice(UNCLEAN) if is_plain else "never",
        recreate_gap_ms=draws.choice((*5 * [0], 200, 500)) if is_plain else 0,
    )
    return _adapted(drawn)


def _adapted(options: Options) -> Options:
    """So that what was drawn to happen does."""
    if options.recreate_gap_ms:
        return replace(options, move_gap_ms=0, unclean="never")
    if options.unclean == "never":
        return options
    # Nobody has to lead uncleanly while one of the set lives, and until it is known that none does.
    return replace(
        options,
        fault_kinds=(*options.fault_kinds, *4 * ("set of a partition crashes",)),
        fault_gap_ms=min(150, options.fault_gap_ms),
        session_timeout_ms=min(500, options.session_timeout_ms),
    )
