"""A disk that keeps count of what is read from it; everything else is the disk below."""

from tidelog.base.ports import Buffer, Disk, File, FileInfo, Lock, OpenMode


class CountingFile:
    def __init__(self, file: File, path: str, reads: list[tuple[str, int]]) -> None:
        self._file = file
        self._path = path
        self._reads = reads

    def pread(self, size: int, offset: int) -> bytes:
        data = self._file.pread(size, offset)
        self._reads.append((self._path, len(data)))
        return data

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._file.pwrite(data, offset)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def reserve(self, size: int, offset: int) -> None:
        self._file.reserve(size, offset)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def resident(self, offset: int, size: int) -> bool:
        return self._file.resident(offset, size)


class CountingDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.reads: list[tuple[str, int]] = []

    def bytes_read(self, ending: str = "") -> int:
        return sum(size for path, size in self.reads if path.endswith(ending))

    def open(self, path: str, mode: OpenMode) -> File:
        return CountingFile(self._disk.open(path, mode), path, self.reads)

    def list(self, folder: str) -> list[str]:
        return self._disk.list(folder)

    def stat(self, path: str) -> FileInfo | None:
        return self._disk.stat(path)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def make_folder(self, path: str) -> None:
        self._disk.make_folder(path)

    def sync_folder(self, path: str) -> None:
        self._disk.sync_folder(path)

    def usage(self, path: str) -> tuple[int, int]:
        return self._disk.usage(path)

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)
