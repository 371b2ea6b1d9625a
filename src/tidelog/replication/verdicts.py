"""What a follower is to do with the answer to a fetch."""

from enum import IntEnum
from typing import Final


class Verdict(IntEnum):
    drop = 0
    append = 1
    """Append the records, then call `followed`."""
    truncate = 2
    """Cut the log at `cut_offset`, then call `was_cut`."""
    restart = 3
    """Begin the log anew at `cut_offset`, then call `was_cut`."""
    back_off = 4


# Looking a member up in its class takes longer than the rest of an answer's bookkeeping.
DROP: Final = Verdict.drop
APPEND: Final = Verdict.append
TRUNCATE: Final = Verdict.truncate
RESTART: Final = Verdict.restart
BACK_OFF: Final = Verdict.back_off
