"""Frames: how a lot of bytes is put on disk so that an unfinished write can be told from damage.

     0  magic       4   ff 'T' 'Z' 'N': no text in UTF-8 contains it
     4  CRC-32C     4   of everything behind it
     8  length      4   of the content
    12  position    8   where in its file this frame begins
    20  content

All numbers are big-endian. A frame is written and synced before the next one is begun. So a
crash can only spoil the last frame: it is cut, wholly. A frame that is spoilt although a good
one stands behind it is damage, and is refused: the frame had been made durable, and somebody
was told so. The last frame alone cannot be told from one that was never finished.
"""

from struct import Struct
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.records.checksum import crc32c

MAGIC: Final = b"\xffTZN"
_PREFIX: Final = Struct(">4sI")
_CHECKED: Final = Struct(">IQ")
HEADER_SIZE: Final = _PREFIX.size + _CHECKED.size


def frame(content: bytes, position: int) -> bytes:
    checked = _CHECKED.pack(len(content), position) + content
    return _PREFIX.pack(MAGIC, crc32c(checked)) + checked


def read_frames(data: bytes, name: str) -> tuple[list[bytes], int]:
    """The contents of a file's frames, and where the last good one ends: what stands behind that
    was never finished. Damage is refused by the file's name."""
    contents: list[bytes] = []
    position = 0
    while (content := _content_at(data, position)) is not None:
        contents.append(content)
        position += HEADER_SIZE + len(content)
    _refuse_damage(data, position, name)
    return contents, position


def _content_at(data: bytes, position: int) -> bytes | None:
    start = position + HEADER_SIZE
    if start > len(data):
        return None
    magic, expected_crc = _PREFIX.unpack_from(data, position)
    size, own_position = _CHECKED.unpack_from(data, position + _PREFIX.size)
    if magic != MAGIC or own_position != position or start + size > len(data):
        return None
    checked = memoryview(data)[position + _PREFIX.size : start + size]
    return bytes(checked[_CHECKED.size :]) if crc32c(checked) == expected_crc else None


def _refuse_damage(data: bytes, position: int, name: str) -> None:
    behind = data.find(MAGIC, position)
    while behind >= 0:
        if _content_at(data, behind) is not None:
            raise BadValue(
                f"{name}: what stands at byte {position} is damaged, and good data follows at byte "
                f"{behind}: restore the folder from a backup"
            )
        behind = data.find(MAGIC, behind + 1)
