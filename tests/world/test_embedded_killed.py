"""The embedded coordination in a process of its own, which is killed while it writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.coordinated import RealEmbedded

WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.coordinated import RealEmbedded
from tidelog.base.coordination import Create

place = RealEmbedded(Path(sys.argv[1]), journal_bytes_max=20_000)
place.write(Create(path="/e", ephemeral=True))

def told(answer):
    print(answer[0], place.coordination._tree.zxid, flush=True)
    send()

def send():
    place.coordination.write([Create(path="/n-", data=b"x" * 100, sequence=True)], told)

for _ in range(5):
    send()
while True:
    place.turn()
"""


@pytest.mark.parametrize("lines_before_the_end", [1, 40, 400])
def test_a_killed_process_leaves_every_write_it_was_told_of(
    tmp_path: Path, lines_before_the_end: int
) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[1])]
    zxid_max = 0
    told: set[str] = set()
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(lines_before_the_end)]
            process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        whole = [line.split() for line in lines if line.endswith("\n")]
        assert int(whole[0][1]) > zxid_max
        told |= {path.removeprefix("/") for path, _ in whole}
        zxid_max = max(int(zxid) for _, zxid in whole)
        place = RealEmbedded(tmp_path)
        names = set(place.children("/"))
        assert told <= names
        assert "e" not in names
        assert place.coordination.session_id > zxid_max
        place.release()
