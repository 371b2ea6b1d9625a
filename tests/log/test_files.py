"""How files are opened to be written from their start."""

import os
from pathlib import Path

import pytest

from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.files import open_empty
from tidelog.log.log_dir import LogDir
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk, RealFile


def test_what_is_in_a_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"left behind")
    open_empty(RealDisk(), str(tmp_path / "file")).pwrite(b"new", 0)
    assert (tmp_path / "file").read_bytes() == b"new"


def test_an_empty_file_is_not_cut(tmp_path: Path) -> None:
    """A cut changes the time of the file, whatever size it had."""
    path = tmp_path / "file"
    path.touch()
    os.utime(path, (0, 0))
    assert open_empty(RealDisk(), str(path)).size() == 0
    assert path.stat().st_mtime == 0


def test_the_log_of_a_new_segment_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 would write it out when it is closed, and a roll closes one in the loop."""
    cut: list[RealFile] = []
    monkeypatch.setattr(RealFile, "truncate", lambda file, _: cut.append(file))
    log_dir = LogDir(str(tmp_path / "data"), RealDisk(), RealClock())
    settings = LogSettings()
    log_dir.open({"broker.id": "0"}, lambda _: settings)
    log = log_dir.create_log(TopicPartition("orders", 0), settings)
    roll = log.begin_roll()
    roll.run()
    assert not {log.segments.active.file, roll.segment.file} & set(cut)
    log_dir.close()
