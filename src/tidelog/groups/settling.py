"""Good news for the members of classic groups waits until all that led to it is committed.

A coordinator that has just taken over may know of a generation that is not committed yet. Were a
member told of it and the coordinator lost, the next might go on from the one before.
"""

from collections.abc import Callable

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Committed
from tidelog.groups.errors import told
from tidelog.groups.requests import AnswerCodes, AnswerJoin, AnswerSync, Joined, Synced

Settle = Callable[[Committed], None]


def settled_join(settle: Settle, answer: AnswerJoin) -> AnswerJoin:
    def tell(joined: Joined) -> None:
        def committed(error: KafkaError | None) -> None:
            failed = Joined(code=told(error), member_id=joined.member_id)
            answer(joined if error is None else failed)

        if joined.code is ErrorCode.none:
            settle(committed)
        else:
            answer(joined)

    return tell


def settled_sync(settle: Settle, answer: AnswerSync) -> AnswerSync:
    def tell(synced: Synced) -> None:
        def committed(error: KafkaError | None) -> None:
            answer(synced if error is None else Synced(code=told(error)))

        if synced.code is ErrorCode.none:
            settle(committed)
        else:
            answer(synced)

    return tell


def settled_codes(settle: Settle, codes: list[ErrorCode], answer: AnswerCodes) -> None:
    def committed(error: KafkaError | None) -> None:
        answer([told(error) if code is ErrorCode.none else code for code in codes])

    settle(committed)
