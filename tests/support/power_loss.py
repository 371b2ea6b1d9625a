"""A machine whose wall clock can be set and whose power can be lost, under one broker process.

`Machine` gives the environment a broker is to be started in. What it loses is decided when it is
dead (`lose_power`), from what was durable then and what was not: for every folder the names
as they were last synced or as they are now, for every file all that was not synced, none of it, or
some sectors. Nothing of this is known to the broker but that the machine has booted again.
"""

import os
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Final

from support.machine_shim import sitecustomize as shim

SECTOR: Final = 512


class Machine:
    def __init__(self, folder: Path, log_dir: Path) -> None:
        """`folder` must be on the same file system as the log dir."""
        folder.mkdir(parents=True, exist_ok=True)
        self._log_dir = Path(os.path.realpath(log_dir))
        self._clock, self._boot, self._durable = (
            folder / name for name in ("clock", "boot", "durable")
        )
        self._boots = 0
        self.set_clock(0)
        self._boot_again()
        self.environment = {
            "PYTHONPATH": str(Path(shim.__file__).parent),
            shim.CLOCK: str(self._clock),
            shim.BOOT: str(self._boot),
            shim.DURABLE: str(self._durable),
            shim.LOG_DIR: str(self._log_dir),
        }

    def set_clock(self, seconds: float) -> None:
        """So far from the time it is: at once, also for those that run."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(shim.SHIFT.pack(int(seconds * 1e9)))

    def note_syncs(self) -> None:
        """From now on. All that is there is durable."""
        self.forget_syncs()
        durable = shim.Durable(self._durable)
        durable.begin()
        for path in (self._log_dir, *self._log_dir.rglob("*")):
            durable.note(str(path))

    def forget_syncs(self) -> None:
        """What is not noted any more cannot be lost either."""
        if self._durable.exists():
            aside = self._durable.with_name("forgotten")
            self._durable.rename(aside)
            rmtree(aside)

    def lose_power(self, draws: Random) -> int:
        """The broker and its children must be dead. How many bytes are not what they were."""
        durable = shim.Durable(self._durable)
        lost = 0
        for folder in [self._log_dir, *sorted(p for p in self._log_dir.iterdir() if p.is_dir())]:
            if folder.is_dir() and draws.random() < 0.5:
                _go_back_to_names(folder, durable)
        for path in sorted(p for p in self._log_dir.rglob("*") if p.is_file()):
            lost += _go_back(path, durable.content(path.stat().st_ino), draws)
        self._boot_again()
        self.note_syncs()
        return lost

    def _boot_again(self) -> None:
        self._boots += 1
        self._boot.write_text(f"boot-{self._boots}", encoding="ascii")


def _go_back_to_names(folder: Path, durable: shim.Durable) -> None:
    """As they were when the folder was last synced. Folders that went since stay away."""
    names = durable.names(folder)
    for path in sorted(folder.iterdir()):
        inode = shim.FOLDER if path.is_dir() else path.stat().st_ino
        if names.get(path.name) == inode:
            continue
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink()
    for name, inode in sorted(names.items()):
        if inode != shim.FOLDER and not (folder / name).exists():
            os.link(durable.file(inode), folder / name)


def _go_back(path: Path, durable: bytes, draws: Random) -> int:
    """Sectors as they were when the file was last synced: all, none, or each as it happens."""
    written = path.read_bytes()
    if written == durable:
        return 0
    kept = draws.choice((0.0, 0.5, 1.0))
    size = draws.choice((len(durable), len(written)))
    if kept == 0.5 and draws.random() < 0.5:
        size = draws.randint(min(len(durable), len(written)), max(len(durable), len(written)))
    left = bytearray()
    for at in range(0, size, SECTOR):
        new, old = written[at : at + SECTOR], durable[at : at + SECTOR]
        left += (new if draws.random() < kept else old).ljust(SECTOR, b"\0")
    del left[size:]
    path.write_bytes(left)
    return sum(a != b for a, b in zip(left, written, strict=False)) + abs(len(left) - len(written))
