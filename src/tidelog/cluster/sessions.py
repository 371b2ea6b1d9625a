"""Questions that outlive sessions: asked again in the next one, for whatever may be done twice.

Between two sessions, and after the last, everything is refused at once. So who has lost one does
not ask before there is another.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tidelog.base.coordination import Coordination, CoordinationError, SessionState, Trouble
from tidelog.cluster.writing import Ask, insist

Result = TypeVar("Result")


class Sessions:
    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._waiting: list[Callable[[], None]] = []
        coordination.on_session(self._changed)

    def insist(self, ask: Ask[Result], done: Callable[[Result], None]) -> None:
        """Asks until there is an answer, in whichever session that comes."""
        session_id = self._coordination.session_id
        again = partial(self.insist, ask, done)

        def answered(result: Result) -> None:
            is_over = isinstance(result, CoordinationError) and (
                result.trouble is Trouble.session_expired
            )
            if not is_over:
                done(result)
            elif self._coordination.session_id != session_id:
                # That there is another may have been told already.
                again()
            else:
                self._waiting.append(again)

        insist(ask, answered)

    def _changed(self, state: SessionState) -> None:
        if state is SessionState.connected:
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                go_on()
