"""What stands for the two ends of a partition where a time is asked for, without what asks."""

from typing import Final

EARLIEST: Final = -2
LATEST: Final = -1
