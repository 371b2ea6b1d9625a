"""The disk of this machine, through the operating system's own calls.

`pread` and `pwrite` are the hot path: one system call and one comparison when the system
takes or gives everything, which on a regular file is nearly always. Every error is an
`OSError` with its errno and the file's name, so that a message says which file it was.
"""

import ctypes
import errno
import fcntl
import os
import stat

from tidelog.base.ports import Buffer, File, FileInfo, Lock, OpenMode
from tidelog.world.real.handed import readers_beyond

_FLAGS = {
    "read": os.O_RDONLY | os.O_CLOEXEC,
    "write": os.O_RDWR | os.O_CLOEXEC,
    "create": os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
}
_CLOSED = -1
_KEEP_SIZE = 1
_LIBC = ctypes.CDLL(None)
_PROBE = (bytearray(1),)
"""Where a byte is read to that nobody wants, from any thread."""


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _with_name(error: OSError, path: str) -> OSError:
    return _error(error.errno or errno.EIO, path)


class RealFile:
    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            return self._read_on(data, size, offset)
        except OSError as error:
            raise _with_name(error, self._path) from None

    def _read_on(self, data: bytes, size: int, offset: int) -> bytes:
        """Fewer bytes than asked for do not prove the end; only none at all do."""
        parts = [data]
        missing = size - len(data)
        while missing:
            part = os.pread(self._descriptor, missing, offset + size - missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def pwrite(self, data: Buffer, offset: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, offset)
            if written != len(data):
                self._write_on(data, written, offset)
        except OSError as error:
            raise _with_name(error, self._path) from None

    def _write_on(self, data: Buffer, written: int, offset: int) -> None:
        """A short count is no error yet: the next call says why, or takes the rest."""
        with memoryview(data) as view, view.cast("B") as rest:
            while written < len(rest):
                count = os.pwrite(self._descriptor, rest[written:], offset + written)
                if count == 0:
                    raise _error(errno.ENOSPC, self._path)
                written += count

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _with_name(error, self._path) from None

    def truncate(self, size: int) -> None:
        try:
            for reader in readers_beyond(self._descriptor, size):
                reader.end()
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _with_name(error, self._path) from None

    def reserve(self, size: int, offset: int) -> None:
        """What is not found now is looked for when it is written, and an error is told then."""
        room = ctypes.c_int64(offset), ctypes.c_int64(size)
        _LIBC.fallocate(self._descriptor, _KEEP_SIZE, *room)

    def sync(self) -> None:
        """The modification time is made durable too: retention reads it."""
        if self._descriptor == _CLOSED:
            raise _error(errno.EBADF, self._path)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _with_name(error, self._path) from None

    def resident(self, offset: int, size: int) -> bool:
        """Asks for the first and the last byte. Pages between them may be missing all the
        same, and where a file system cannot say, everything counts as there."""
        try:
            os.preadv(self._descriptor, _PROBE, offset, os.RWF_NOWAIT)
            if size > 1:
                os.preadv(self._descriptor, _PROBE, offset + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise _with_name(error, self._path) from None
        return True

    def fileno(self) -> int:
        """For `sendfile`, while this object is held."""
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """Held until released or until the process ends; losing the object does not release it."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)


class RealDisk:
    def open(self, path: str, mode: OpenMode) -> File:
        descriptor = os.open(path, _FLAGS[mode], 0o644)
        file = RealFile(descriptor, path)
        if mode == "read" and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            file.close()
            raise _error(errno.EISDIR, path)
        return file

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def stat(self, path: str) -> FileInfo | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_folder = stat.S_ISDIR(status.st_mode)
        return FileInfo(
            size=0 if is_folder else status.st_size,
            modified_ms=status.st_mtime_ns // 1_000_000,
            is_folder=is_folder,
        )

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rmdir(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _with_name(error, path) from None
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail

    def lock(self, path: str) -> Lock:
        descriptor = os.open(path, _FLAGS["create"], 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise _with_name(error, path) from None
        return RealLock(descriptor)
