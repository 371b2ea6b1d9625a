"""Damage to the small files of a broker that is down, drawn at random: what a disk may do to them.

Some of it makes a file that cannot be read, some makes one that says something else: a digit that
has become another one is the worst of them.
"""

from pathlib import Path
from random import Random
from typing import Final

from tidelog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from tidelog.log.files import OFFSET_INDEX, SNAPSHOT, TIME_INDEX
from tidelog.log.log_dir import BOOT_ID

OF_THE_DIR: Final = (
    RECOVERY_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    CLEANER_OFFSETS,
    BOOT_ID,
    CLEAN_SHUTDOWN,
)
OF_A_PARTITION: Final = (
    f"*{OFFSET_INDEX}",
    f"*{TIME_INDEX}",
    f"*{SNAPSHOT}",
    f"{LEADER_EPOCHS}*",
    PARTITION_METADATA,
)
DIGITS: Final = b"0123456789"
HEADER_LINES: Final = 2


def small_files(log_dir: Path, topic: str) -> list[Path]:
    """Those of the dir, and of each of a topic's partitions in it, but for what names its owner:
    without that a broker does not start."""
    found = [log_dir / name for name in OF_THE_DIR if (log_dir / name).exists()]
    for pattern in OF_A_PARTITION:
        found += sorted(log_dir.glob(f"{topic}-*/{pattern}"))
    return found


def change_numbers(path: Path, random: Random) -> bool:
    """Makes another digit of one, in a text file, behind the lines that say what it is; False if
    there is none."""
    data = bytearray(path.read_bytes())
    begin = 0
    for _ in range(HEADER_LINES):
        begin = data.find(b"\n", begin) + 1
    places = [at for at in range(begin, len(data)) if data[at] in DIGITS]
    if not begin or not places:
        return False
    at = random.choice(places)
    data[at] = random.choice([digit for digit in DIGITS if digit != data[at]])
    path.write_bytes(data)
    return True


def spoil(path: Path, random: Random) -> str:
    """Flips a bit, cuts the file, or fills a part of it with zeros; how, if anything."""
    data = bytearray(path.read_bytes())
    if not data:
        return ""
    at = random.randrange(len(data))
    how = random.choice(["flipped", "cut", "zeros"])
    if how == "flipped":
        data[at] ^= 1 << random.randrange(8)
    elif how == "cut":
        del data[at:]
    else:
        data[at:] = bytes(len(data) - at)
    path.write_bytes(data)
    return how
