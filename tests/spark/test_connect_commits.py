"""At a Spark Connect server a DataFrame is a plan: it is made anew once the server has forgotten
it, so that only rows that were kept there say how far a group is (P3).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server
from tidelog.cli.connect_server import ConnectServer
from tidelog.client.client import Client
from tidelog.client.offsets import committed_offsets

FORGETFUL: Final = "spark.connect.session.planCache.maxSize 1\n"
"""It is 16 by default."""


def test_rows_that_may_be_read_anew_are_not_committed(
    log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(FORGETFUL)
    program = str(ROOT / "tests" / "support" / "connect_driver.py")
    with ConnectServer(tmp_path, "local[2]", tmp_path / "log") as server:
        done = subprocess.run(
            [sys.executable, program, server.address, log_server.address, topic, f"of-{topic}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["first"], found["later"]) == (2, 4), "a DataFrame there is no snapshot, still"
    assert "rows = rows.localCheckpoint()" in found["why"]
    assert found["taken"] == 4
    with Client(log_server.address) as client:
        assert list(committed_offsets(client, f"of-{topic}").values()) == [4]
