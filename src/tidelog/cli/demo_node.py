"""The broker of the demo: a process of its own, started, killed and stopped like any other.

It is `tidelog server` with its data in the demo's folder, on ports that are free. Its second
listener, FLAKY, tells clients an address of the demo's choice, so that a step can put a bad
network in between. What it costs is read from /proc. It never outlives the demo.
"""

import os
import signal
import subprocess
from pathlib import Path
from time import perf_counter
from typing import Final

from tidelog.cli.free_ports import free_ports
from tidelog.cli.local_cluster import SERVER
from tidelog.world.real.mortal import mortal

_STOP_SECONDS_MAX: Final = 30


class Node:
    def __init__(self, folder: Path) -> None:
        self.log_dir = folder / "log-dir"
        self.log_file = folder / "server.log"
        ports = free_ports(3)
        self.address = f"127.0.0.1:{ports[0]}"
        self.behind_the_proxy = ("127.0.0.1", ports[1])
        self.proxy = ("127.0.0.1", ports[2])
        self.settings = {
            "log.dirs": str(self.log_dir),
            "listeners": f"PLAINTEXT://{self.address},FLAKY://127.0.0.1:{ports[1]}",
            "advertised.listeners": f"PLAINTEXT://{self.address},FLAKY://127.0.0.1:{ports[2]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FLAKY:PLAINTEXT",
        }
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> float:
        """Returns how many seconds it took from nothing to a broker that listens."""
        assert self._process is None, "the node runs already"
        command = mortal(SERVER, signal.SIGKILL)
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        began = perf_counter()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which ends this itself.
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(b"listening on"), f"no broker: see {self.log_file}"
        return perf_counter() - began

    def last_lines(self, count: int) -> list[str]:
        """Of what it has logged."""
        return self.log_file.read_text(encoding="utf-8").splitlines()[-count:]

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the node does not run"
        return self._process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        status = self._end(signal.SIGTERM)
        assert status == 0, f"the node ended with status {status}: see {self.log_file}"

    def close(self) -> None:
        """Ends it if it still runs."""
        if self._process is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "the node does not run"
        process, self._process = self._process, None
        with process:
            process.send_signal(number)
            return process.wait(_STOP_SECONDS_MAX)

    # -- what it costs

    def memory_mb(self) -> float:
        """What the process holds in memory now."""
        return self._status_kb("VmRSS") / 1024

    def memory_mb_max(self) -> float:
        return self._status_kb("VmHWM") / 1024

    def processes(self) -> int:
        """How many processes it is: itself, and children if it needed any."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text()
        return 1 + len(children.split())

    def cpu_seconds(self) -> float:
        """What it has used so far, in the steps of 10 ms that the kernel counts."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status_kb(self, field: str) -> int:
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
