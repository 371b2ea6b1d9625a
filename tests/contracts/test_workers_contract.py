"""What every kind of workers does: one body for child processes and the simulated ones."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.base.errors import TaskError
from tidelog.base.ports import Disk, Workers
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.workers import RealWorkers, WorkersByTask
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.workers import SimWorkers


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    workers: Workers
    disk: Disk
    folder: str


@pytest.fixture(params=["real", "by task", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param != "simulated":
        workers = RealWorkers() if request.param == "real" else WorkersByTask()
        yield Place(workers=workers, disk=RealDisk(), folder=str(tmp_path))
        workers.close()
    else:
        disk = SimDisk()
        disk.make_folder("/work")
        yield Place(workers=SimWorkers(disk), disk=disk, folder="/work")


def test_a_task_sees_the_disk_and_answers(place: Place) -> None:
    place.disk.open(f"{place.folder}/file", "create").close()
    result = place.workers.start("about", {"folder": place.folder}).result()
    assert result["names"] == ["file"]


def test_a_result_can_be_asked_for_again(place: Place) -> None:
    job = place.workers.start("about", {"folder": place.folder})
    assert job.result() == job.result()


def test_tasks_can_wait_for_each_other_and_be_asked_in_any_order(place: Place) -> None:
    for name in "abc":
        place.disk.make_folder(f"{place.folder}/{name}/in-{name}")
    jobs = [place.workers.start("about", {"folder": f"{place.folder}/{name}"}) for name in "abc"]
    names = [job.result()["names"] for job in reversed(jobs)]
    assert names == [["in-c"], ["in-b"], ["in-a"]]


def test_an_error_of_the_disk_comes_back_as_itself_every_time(place: Place) -> None:
    job = place.workers.start("about", {"folder": f"{place.folder}/no"})
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as caught:
            job.result()
        assert caught.value.errno == errno.ENOENT
        assert caught.value.filename == f"{place.folder}/no"


def test_any_other_error_comes_back_with_its_message(place: Place) -> None:
    with pytest.raises(TaskError, match="about: KeyError: 'folder'"):
        place.workers.start("about", {}).result()


def test_workers_go_on_after_an_error(place: Place) -> None:
    bad = place.workers.start("about", {})
    good = place.workers.start("about", {"folder": place.folder})
    assert good.result()["names"] == []
    with pytest.raises(TaskError):
        bad.result()


def test_a_task_that_does_not_exist_is_a_bug_of_the_caller(place: Place) -> None:
    there = "about, clean, find time, inspect, inspect many, scan"
    with pytest.raises(AssertionError, match=f"no task 'fly'; there are {there}"):
        place.workers.start("fly", {})


def test_an_argument_that_is_not_json_is_refused_at_once(place: Place) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        place.workers.start("about", {"folder": b"bytes"})


def test_large_arguments_and_results_pass(place: Place) -> None:
    """More than the pipes between the processes hold, both ways."""
    names = [f"{number:03}-{'n' * 200}" for number in range(500)]
    for name in names:
        place.disk.open(f"{place.folder}/{name}", "create").close()
    argument = {"folder": place.folder, "padding": "p" * 1_000_000}
    jobs = [place.workers.start("about", argument) for _ in range(3)]
    assert [job.result()["names"] for job in jobs] == [names] * 3
