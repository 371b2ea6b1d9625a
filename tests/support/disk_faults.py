"""Disks that fail: a shim for one process, and small file systems.

The shim is a few lines of C, compiled when a test wants it and loaded into a broker with
LD_PRELOAD: while its control file names a fault and an error number, writing to files under one
folder, syncing them, or changing their names fails with it. `SmallDisk` is a tmpfs of a few
megabytes, where one may be mounted, and fills up for real.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <asm/fcntl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define AT_FDCWD -100

/* "W 5": writing fails with error 5; "S 5": only syncing does; "H 5": each write takes half of what
   it is given; "T 5": so does one, and the next fails; "N 5": names cannot be made or changed. */
static int said(char what, const char **folder) {
    const char *control = getenv("TIDELOG_TEST_FAULT");
    *folder = getenv("TIDELOG_TEST_FOLDER");
    if (!control || !*folder) return 0;
    int opened = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return 0;
    char text[32] = {0};
    ssize_t size = read(opened, text, sizeof text - 1);
    close(opened);
    return size < 3 || text[0] != what ? 0 : atoi(text + 2);
}

static int is_inside(const char *path, const char *folder) {
    return !strncmp(path, folder, strlen(folder));
}

static int fault(int fd, char what) {
    const char *folder;
    int error = said(what, &folder);
    if (!error) return 0;
    char name[64], path[4096] = {0};
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) < 0) return 0;
    return is_inside(path, folder) ? error : 0;
}

static int fault_of_name(const char *path) {
    const char *folder;
    int error = said('N', &folder);
    return error && is_inside(path, folder) ? error : 0;
}

static size_t allowed(int fd, size_t size, int *error) {
    static __thread int is_torn;
    *error = fault(fd, 'W');
    if (*error) return 0;
    int torn = fault(fd, 'T');
    if (torn && is_torn) *error = torn;
    is_torn = torn && !is_torn;
    return torn || fault(fd, 'H') ? (size + 1) / 2 : size;
}

#define CALL(kind, name, error_is, parameters, arguments)          \
    kind name parameters {                                         \
        static kind (*real) parameters;                            \
        if (!real) real = dlsym(RTLD_NEXT, #name);                 \
        int error = 0;                                             \
        error_is;                                                  \
        if (error) { errno = error; return -1; }                   \
        return real arguments;                                     \
    }

CALL(ssize_t, write, size = allowed(fd, size, &error), (int fd, const void *data, size_t size),
     (fd, data, size))
CALL(ssize_t, pwrite64, size = allowed(fd, size, &error),
     (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
CALL(ssize_t, pwrite, size = allowed(fd, size, &error),
     (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(ssize_t, writev, error = fault(fd, 'W'), (int fd, const struct iovec *data, int count),
     (fd, data, count))
CALL(ssize_t, pwritev64, error = fault(fd, 'W'),
     (int fd, const struct iovec *data, int count, off64_t at), (fd, data, count, at))
CALL(ssize_t, pwritev, error = fault(fd, 'W'),
     (int fd, const struct iovec *data, int count, off_t at), (fd, data, count, at))
CALL(ssize_t, pwritev64v2, error = fault(fd, 'W'),
     (int fd, const struct iovec *data, int count, off64_t at, int flags),
     (fd, data, count, at, flags))
CALL(ssize_t, pwritev2, error = fault(fd, 'W'),
     (int fd, const struct iovec *data, int count, off_t at, int flags),
     (fd, data, count, at, flags))
CALL(int, fsync, error = fault(fd, 'S'), (int fd), (fd))
CALL(int, fdatasync, error = fault(fd, 'S'), (int fd), (fd))
CALL(int, open64, error = flags & O_CREAT ? fault_of_name(path) : 0,
     (const char *path, int flags, mode_t mode), (path, flags, mode))
CALL(int, open, error = flags & O_CREAT ? fault_of_name(path) : 0,
     (const char *path, int flags, mode_t mode), (path, flags, mode))
CALL(int, rename, error = fault_of_name(path), (const char *path, const char *to), (path, to))
CALL(int, unlink, error = fault_of_name(path), (const char *path), (path))
CALL(int, mkdir, error = fault_of_name(path), (const char *path, mode_t mode), (path, mode))
"""

FAULTS: Final = {
    "write": "W",
    "fsync": "S",
    "half a write": "T",
    "writes that take half": "H",
    "new names": "N",
}


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

    def fail(self, how: str, number: int = errno.EIO) -> None:
        """In one of the ways in `FAULTS`, from now on."""
        self._say(f"{FAULTS[how]} {number}")

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
        options = f"size={megabytes}m,mode=700,uid={os.getuid()},gid={os.getgid()}"
        _as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))

    @staticmethod
    def is_possible(folder: Path) -> bool:
        """Also root may not mount in some containers."""
        try:
            SmallDisk(folder, 1).close()
        except (subprocess.CalledProcessError, FileNotFoundError):
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
        _as_root("umount", "-l", str(self.folder))


def _as_root(*command: str) -> None:
    """By sudo, where that asks for no password."""
    by = () if os.geteuid() == 0 else ("sudo", "--non-interactive")
    subprocess.run([*by, *command], check=True, capture_output=True)
