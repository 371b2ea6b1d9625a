"""Connections that send a byte now and then cost what those bytes cost, and nothing to others: what
the broker does is counted, call by call, so that no other load on the machine matters (Z5)."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from support.brokers import METADATA, SimClient, SimNode, one_batch

SLOW = 300
CALLS_OF_A_BYTE_MAX = 10
"""Asked where to put it, told that it came, counted, and no more."""
CALLS_BESIDE_MAX = 24
"""Of a round's some 300: timers of the broker's own fall into it or not, and the simulated network
hands its frames over in more or fewer pieces."""
OURS = ("/tidelog/handlers/", "/tidelog/wire/", "/tidelog/serving/", "/tidelog/broker.py")


def calls_of(work: Callable[[], None]) -> int:
    """How many functions of the broker are called, wherever it keeps its connections."""
    count = 0

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        if event == "call" and any(part in frame.f_code.co_filename for part in OURS):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_request_costs_the_same_beside_many_slow_connections() -> None:
    """Z5: p99 of others below twice what it was. A byte is far less work than a request, and a
    connection that says nothing is none: so it holds however many there are."""
    node = SimNode()
    witness = node.client()
    witness.create("witness")

    def one_round() -> None:
        produced = witness.produce("witness", one_batch("seen"))
        assert witness.fetch("witness", produced.base_offset).records

    one_round()
    alone = min(calls_of(one_round) for _ in range(20))
    slow = [node.client() for _ in range(SLOW)]
    beside = min(calls_of(one_round) for _ in range(20))
    assert beside <= alone + CALLS_BESIDE_MAX, "connections that say nothing cost nothing"

    request = slow[0].request(METADATA, 12, topics=[], include_topic_authorized_operations=False)
    for at in range(6):
        sent = request[at : at + 1]
        calls = calls_of(lambda sent=sent: _arrives(node, slow, sent))  # type: ignore[misc]
        assert calls <= SLOW * CALLS_OF_A_BYTE_MAX, "a byte costs what a byte costs"
    between = min(calls_of(one_round) for _ in range(20))
    assert between <= alone + CALLS_BESIDE_MAX, "and frames that are not whole cost nothing"


def _arrives(node: SimNode, slow: list[SimClient], data: bytes) -> None:
    for client in slow:
        client.send_bytes(data)
    node.loop.run_for(100)
