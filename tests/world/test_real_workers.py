"""What only worker processes can show: that they are one, die with us, and are replaced."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.base.errors import ChildDied, NotStarted, TaskError
from tidelog.world.real.workers import RealWorkers

TRIES_MAX = 5
PARENT = """
import sys
from tidelog.world.real.workers import RealWorkers
workers = RealWorkers()
print(workers.start("about", {"folder": "/"}).result()["pid"], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def workers() -> Iterator[RealWorkers]:
    made = RealWorkers()
    yield made
    made.close()


def pid_of_child(workers: RealWorkers) -> int:
    pid: int = workers.start("about", {"folder": "/"}).result()["pid"]
    return pid


def has_ended(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def is_reaped(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    return not Path(f"/proc/{pid}").exists()


def test_one_child_is_started_and_kept(workers: RealWorkers) -> None:
    pids = {pid_of_child(workers) for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_a_child_that_had_nothing_to_do_for_a_while_is_sent_away_and_replaced() -> None:
    workers = RealWorkers(idle_ms=50)
    pid = pid_of_child(workers)
    assert is_reaped(pid)
    assert pid_of_child(workers) != pid
    workers.close()


def test_a_child_that_works_for_longer_than_one_may_idle_is_kept() -> None:
    assert any(children_for_twenty_tasks() == 1 for _ in range(TRIES_MAX))


def children_for_twenty_tasks() -> int:
    """One, unless the machine is so busy that the first is done before the next is given."""
    workers = RealWorkers(idle_ms=1)
    jobs = [workers.start("about", {"folder": "/"}) for _ in range(20)]
    children = {job.result()["pid"] for job in jobs}
    workers.close()
    return len(children)


def test_the_child_is_less_urgent_than_we_are(workers: RealWorkers) -> None:
    niceness = workers.start("about", {"folder": "/"}).result()["niceness"]
    assert niceness == min(os.nice(0) + 5, 19)


def test_a_child_that_has_loaded_no_task_is_small(workers: RealWorkers) -> None:
    modules = set(workers.start("about", {"folder": "/"}).result()["modules"])
    assert not modules & {"numba", "numpy", "pyarrow", "hypothesis.core", "tidelog.log.cleaning"}


def test_starting_tasks_does_not_import_what_they_are_made_of() -> None:
    script = (
        "import sys, tidelog.world.real.workers, tidelog.world.sim.workers, tidelog.worker;"
        "print({'numba', 'numpy', 'pyarrow', 'tidelog.log.cleaning'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


def test_a_child_killed_in_the_middle_of_a_task_is_told_of_and_replaced(
    workers: RealWorkers,
) -> None:
    pid = pid_of_child(workers)
    os.kill(pid, signal.SIGSTOP)
    jobs = [workers.start("about", {"folder": "/"}) for _ in range(3)]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="about: the worker process was killed by signal 9"):
        jobs[0].result()
    others = {job.result()["pid"] for job in jobs[1:]}
    assert len(others) == 1
    assert pid not in others


def test_a_child_that_died_between_tasks_is_replaced(workers: RealWorkers) -> None:
    pid = pid_of_child(workers)
    os.kill(pid, signal.SIGKILL)
    assert is_reaped(pid), "until all its threads are gone, its pipe still takes a task"
    assert pid_of_child(workers) != pid


def test_closing_ends_the_child_and_the_tasks_that_wait() -> None:
    workers = RealWorkers()
    pid = pid_of_child(workers)
    os.kill(pid, signal.SIGSTOP)
    jobs = [workers.start("about", {"folder": "/"}) for _ in range(2)]
    workers.close()
    assert has_ended(pid)
    with pytest.raises(TaskError, match="killed by signal 9"):
        jobs[0].result()
    with pytest.raises(TaskError, match="the workers were closed"):
        jobs[1].result()
    with pytest.raises(AssertionError, match="closed"):
        workers.start("about", {"folder": "/"})
    workers.close()


def test_closing_workers_that_never_started_is_fine() -> None:
    RealWorkers().close()


def test_no_child_outlives_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert has_ended(pid)


def test_a_child_in_the_middle_of_a_task_ends_with_its_parent() -> None:
    """It would otherwise write files under the feet of the next broker."""
    script = (
        "import tidelog.worker, tidelog.world.tasks as t, time\n"
        "t.about = lambda disk, argument: time.sleep(100)\n"
        "tidelog.worker.main()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(b'{"task": "about", "argument": "{}"}\n')
    child.stdin.close()
    assert child.wait(timeout=60) == 0


def test_what_a_task_prints_does_not_come_between_the_answers() -> None:
    script = (
        "import tidelog.worker, tidelog.world.tasks as t\n"
        "def about(disk, argument):\n"
        "    print('hello', flush=True)\n"
        "    return {}\n"
        "t.about = about\n"
        "tidelog.worker.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(b'{"task": "about", "argument": "{}"}\n')
        child.stdin.flush()
        assert child.stdout.readline() == b'{"result": {}}\n'
        child.stdin.close()
        assert child.stderr.read() == b"hello\n"


def test_a_child_that_cannot_be_started_costs_one_task(
    workers: RealWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F17: for want of descriptors, or of memory; the next task tries again."""
    real, fails = subprocess.Popen, [True]

    def popen(*arguments: Any, **options: Any) -> Any:
        if fails:
            fails.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    job = workers.start("about", {"folder": "/"})
    with pytest.raises(NotStarted, match="no worker process could be started"):
        job.result()
    assert pid_of_child(workers) > 0
