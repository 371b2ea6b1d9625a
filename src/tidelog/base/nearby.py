"""How a client and a broker of one machine talk: what lies in a file is not sent.

Beside every port that is listened on there is a Unix socket, whose abstract name is seen by this
network namespace alone. A client that runs as the same user takes that way instead. Its requests
are as they are everywhere. What it is answered comes in pieces with a head: so many bytes that
follow, or so many at a position of a file, whose descriptor comes with the head (as in HDFS's
short-circuit reads). The client reads them out of the page cache itself, when it wants them.
"""

from struct import Struct
from typing import Final

HEAD: Final = Struct("<qq")
"""How many bytes, and their position in the file, or `INLINE`."""
INLINE: Final = -1
BOTH_KINDS: Final = "*"
"""In place of an address: all of this machine, of IPv4 and of IPv6."""
CREDENTIALS: Final = Struct("iII")
"""Process, user and group at the other end of a Unix socket."""
_UNKNOWN_USER: Final = 65_534
"""As Linux calls every user that a namespace does not know."""


def name_beside(host: str, port: int) -> bytes:
    """Of the socket beside a port that is listened on at an address."""
    return f"\0tidelog/{host}:{port}".encode()


def is_same_user(credentials: bytes, own: int) -> bool:
    _, user, _ = CREDENTIALS.unpack(credentials)
    return bool(user == own != _UNKNOWN_USER)
