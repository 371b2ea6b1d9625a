"""Answers to fetches of very many partitions, written some at a time."""

from collections.abc import Generator, Sequence

from tidelog.wire.fetch import FLEXIBLE, FetchAnswer, answer_head, pack_classic, pack_flexible
from tidelog.wire.topics import Topic
from tidelog.wire.values import encode_count, encode_string


def write_in_steps(
    correlation_id: int,
    version: int,
    session_id: int,
    partitions: Sequence[FetchAnswer],
    step: int,
) -> Generator[None, None, list[bytes]]:
    """The pieces that `write_fetch_response` makes of an answer without an error, made of so many
    partitions at a time."""
    flexible = version >= FLEXIBLE
    pieces: list[bytes] = []
    groups: list[tuple[Topic, int]] = []
    size = 0
    for at in range(0, len(partitions), step):
        for number, partition in enumerate(partitions[at : at + step], start=at):
            if not groups or groups[-1][0] != partition[0]:
                groups.append((partition[0], number))
            size += partition[8]
        members = list(partitions[at : at + step])
        if flexible:
            pack_flexible(pieces, version, members)
        else:
            pieces += [pack_classic(version, member) for member in members]
        yield
    # Of a session in which nothing has changed there are none.
    ends = [*(first for _, first in groups[1:]), len(pieces)] if groups else []
    between = encode_count(len(groups), flexible)
    for number, ((topic, first), end) in enumerate(zip(groups, ends, strict=True)):
        encoded = topic if isinstance(topic, bytes) else encode_string(topic, flexible)
        begin = between + encoded + encode_count(end - first, flexible)
        pieces[first] = begin + (pieces[first][1:] if flexible else pieces[first])
        between = b"\x00\x00" if flexible else b""
        if number % step == 0:
            yield
    pieces.append(between + b"\x00" if flexible else between)
    size += sum(map(len, pieces))
    pieces[0] = answer_head(correlation_id, version, session_id, 0, size, 0) + pieces[0]
    return pieces
