"""Rule D6 of fetchers and their links, each half replaced by the mistake that somebody has made."""

import pytest

from tidelog.fetcher import Fetcher
from tidelog.peers.incoming import Incoming
from tidelog.peers.link import Link


def hear_old_connections(patch: pytest.MonkeyPatch) -> None:
    """D6, X12: an answer is taken whatever connection brings it, for whatever was asked last."""

    def answered(self: Link, frame: memoryview) -> None:
        if self._asked:
            self._asked.popleft().expects(frame)

    patch.setattr(Incoming, "abandon", lambda _self: None)
    patch.setattr(Link, "answered", answered)


def ask_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """D6: a fetch does not wait for the answer to the one before."""
    go_on = Fetcher._go_on

    def hasten(self: Fetcher) -> None:
        self._is_under_way = False
        go_on(self)

    patch.setattr(Fetcher, "_go_on", hasten)
