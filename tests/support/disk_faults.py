"""Disks that fail: a shim for one process, and small file systems.

The shim is a few lines of C, compiled when a test wants it and loaded into a broker with
LD_PRELOAD: while its control file names an error number, writing to files under one folder, or
syncing them, fails with it. `SmallDisk` is a tmpfs of a few megabytes, where root may mount one,
and fills up for real.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* "W 5": writing fails with error 5; "S 5": only syncing does. */
static int fault(int fd, char what) {
    const char *control = getenv("TIDELOG_TEST_FAULT"), *folder = getenv("TIDELOG_TEST_FOLDER");
    if (!control || !folder) return 0;
    int opened = open(control, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return 0;
    char said[32] = {0};
    ssize_t size = read(opened, said, sizeof said - 1);
    close(opened);
    if (size < 3 || said[0] != what) return 0;
    char name[64], path[4096] = {0};
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) < 0) return 0;
    return strncmp(path, folder, strlen(folder)) ? 0 : atoi(said + 2);
}

#define CALL(kind, name, what, parameters, arguments)              \
    kind name parameters {                                         \
        static kind (*real) parameters;                            \
        if (!real) real = dlsym(RTLD_NEXT, #name);                 \
        int error = fault(fd, what);                               \
        if (error) { errno = error; return -1; }                   \
        return real arguments;                                     \
    }

CALL(ssize_t, write, 'W', (int fd, const void *data, size_t size), (fd, data, size))
CALL(ssize_t, writev, 'W', (int fd, const struct iovec *data, int count), (fd, data, count))
CALL(ssize_t, pwrite64, 'W', (int fd, const void *data, size_t size, off64_t at),
     (fd, data, size, at))
CALL(ssize_t, pwrite, 'W', (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(ssize_t, pwritev64, 'W', (int fd, const struct iovec *data, int count, off64_t at),
     (fd, data, count, at))
CALL(ssize_t, pwritev, 'W', (int fd, const struct iovec *data, int count, off_t at),
     (fd, data, count, at))
CALL(ssize_t, pwritev64v2, 'W',
     (int fd, const struct iovec *data, int count, off64_t at, int flags),
     (fd, data, count, at, flags))
CALL(ssize_t, pwritev2, 'W', (int fd, const struct iovec *data, int count, off_t at, int flags),
     (fd, data, count, at, flags))
CALL(int, fsync, 'S', (int fd), (fd))
CALL(int, fdatasync, 'S', (int fd), (fd))
"""


class FailingDisk:
    """Sits in a process from its start, and does nothing until it is told to."""

    def __init__(self, folder: Path, watched: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._control = folder / "fault"
        self._library = folder / "fault.so"
        source = folder / "fault.c"
        source.write_text(_SOURCE, encoding="utf-8")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self.environment = {
            "LD_PRELOAD": str(self._library),
            "TIDELOG_TEST_FAULT": str(self._control),
            "TIDELOG_TEST_FOLDER": str(watched.resolve()),
        }

    @staticmethod
    def is_possible() -> bool:
        return shutil.which("gcc") is not None

    def fail_writes(self, number: int = errno.EIO) -> None:
        self._say(f"W {number}")

    def fail_syncs(self, number: int = errno.EIO) -> None:
        self._say(f"S {number}")

    def work(self) -> None:
        self._control.unlink(missing_ok=True)

    def _say(self, what: str) -> None:
        beside = self._control.with_suffix(".new")
        beside.write_text(what, encoding="ascii")
        beside.rename(self._control)


class SmallDisk:
    """A file system of its own, mounted over a folder."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._filler = folder / "filler"
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    @staticmethod
    def is_possible(folder: Path) -> bool:
        """Root in a container may still not be allowed to mount."""
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return False
        try:
            SmallDisk(folder, 1).close()
        except subprocess.CalledProcessError:
            return False
        return True

    def fill(self) -> None:
        """To the last byte."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for size in (1 << 16, 1):
            try:
                while True:
                    os.write(descriptor, bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        os.close(descriptor)

    def free(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)
