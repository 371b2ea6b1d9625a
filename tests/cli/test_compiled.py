"""The compiled modules of a broker: used where they fit these sources, and never otherwise."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from confluent_kafka import Producer

from support.servers import TidelogServer
from tidelog.cli import compiled, compiling
from tidelog.cli.compiled import LIBRARY, MANIFEST, MODULES, SWITCH, Unusable
from tidelog.records.kernel_folder import cache_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that a test may change."""
    copy = tmp_path / "tidelog"
    shutil.copytree(compiled.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "PACKAGE", copy)
    monkeypatch.setattr(compiled, "_HOW", (copy / "cli" / "compiling.py",))
    return copy


@pytest.fixture
def made() -> Path:
    """What was compiled from these sources, as `make setup` does."""
    cache = cache_folder()
    assert cache is not None
    folder = compiled.folder_in(cache, compiled.made_from())
    if not folder.exists() and "CI" not in os.environ:
        pytest.skip("nothing was compiled from these sources (tidelog kernels warm)")
    compiled.check(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path / "server", {})
    yield server
    server.close()


def is_compiled(server: TidelogServer) -> bool:
    return LIBRARY in Path(f"/proc/{server.process_id}/maps").read_text()


def write_one(server: TidelogServer) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": server.address})
    producer.produce("greetings", b"hello", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


@pytest.mark.usefixtures("made")
def test_a_broker_runs_what_was_compiled(server: TidelogServer) -> None:
    server.start()
    assert is_compiled(server)
    write_one(server)
    server.stop()
    assert "runs as bytecode" not in server.output.read_text()


def test_a_broker_can_be_told_to_run_its_sources(
    server: TidelogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "no")
    server.start()
    assert not is_compiled(server)
    write_one(server)
    server.stop()
    assert f"runs as bytecode why={SWITCH}=no" in server.output.read_text()


def test_a_broker_that_finds_nothing_compiled_says_what_to_do(
    server: TidelogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "empty"))
    server.start()
    assert not is_compiled(server)
    server.stop()
    assert "from these sources (tidelog kernels warm)" in server.output.read_text()


def test_code_is_made_anew_when_something_it_depends_on_has_changed(package: Path) -> None:
    before = compiled.made_from()
    assert compiled.made_from() == before
    for name in ("log/segment.py", "base/limits.py", "cli/compiling.py"):
        source = package / name
        text = source.read_text()
        source.write_text(text + "# changed\n")
        assert compiled.made_from() != before, name
        source.write_text(text)
    (package / "log" / "another.py").write_text("")
    assert compiled.made_from() != before


def test_code_is_kept_when_only_commands_or_pipelines_have_changed(package: Path) -> None:
    before = compiled.made_from()
    for name in ("cli/topics.py", "spark/options.py", "trials/world.py", "world/sim/disk.py"):
        source = package / name
        source.write_text(source.read_text() + "# changed\n")
    assert compiled.made_from() == before


def test_every_module_that_is_compiled_is_one_of_the_sources() -> None:
    names = {path.relative_to(compiled.PACKAGE).as_posix() for path in compiled.sources()}
    wanted = {name.removeprefix("tidelog.").replace(".", "/") + ".py" for name in MODULES}
    assert wanted <= names


def test_what_is_damaged_is_not_used(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "made"))
    compiled.check(copy)
    library = Path(compiled.files_in(copy)[LIBRARY])
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    with pytest.raises(Unusable, match="damaged"):
        compiled.check(copy)
    library.unlink()
    with pytest.raises(Unusable, match="damaged"):
        compiled.check(copy)
    (copy / MANIFEST).unlink()
    with pytest.raises(Unusable, match="tidelog kernels warm"):
        compiled.check(copy)


def test_what_cannot_be_loaded_does_not_keep_a_broker_from_starting(
    server: TidelogServer, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a home that machines with different libraries share."""
    copy = Path(shutil.copytree(made, tmp_path / "cache" / made.name))
    (tmp_path / "cache").chmod(0o700)
    Path(compiled.files_in(copy)[LIBRARY]).write_bytes(b"no library")
    (copy / MANIFEST).write_text(compiled.described(copy))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    server.start()
    write_one(server)
    server.stop()
    assert "what was compiled cannot be loaded" in server.output.read_text()


@pytest.mark.usefixtures("made")
def test_compiled_modules_are_not_mixed_with_those_that_were_imported_before() -> None:
    """Code that was compiled against a class would take another class's objects for its own."""
    program = """
import tidelog.log.files
from tidelog.cli.compiled import use_compiled
print(use_compiled())
import tidelog.partition
print(tidelog.partition.__file__.endswith(".py"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "tidelog.log.files is imported already\nTrue\n", done.stderr


@pytest.mark.usefixtures("made")
def test_compiled_modules_pass_the_tests_of_the_sources() -> None:
    """Those of the broker that need neither processes nor other people's clients; the rest by hand,
    see `support.compiled_modules`."""
    names = (
        "transactions",
        "fetching",
        "producing",
        "producing_together",
        "gathering",
        "connections",
    )
    tests = ["tests/replication", "tests/test_fetchers.py", "tests/log/test_partition_log.py"]
    tests += [f"tests/broker/test_{name}.py" for name in names]
    command = [sys.executable, "-m", "pytest", "-p", "support.compiled_modules", "-q", *tests]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_without_a_c_compiler_nothing_is_compiled_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    said = compiling.compile_broker(str(tmp_path))
    assert said == "the broker runs as bytecode: there is no C compiler"
    assert list(tmp_path.iterdir()) == []


def test_code_of_other_sources_is_kept_for_a_while(made: Path, tmp_path: Path) -> None:
    """Two checkouts share a cache; but it does not grow for ever."""
    for number in range(compiling.KEPT_MAX + 2):
        target = tmp_path / f"broker-{number}"
        with TemporaryDirectory(dir=tmp_path) as work:
            compiling.keep(Path(shutil.copytree(made, Path(work) / "out")), target)
        compiled.check(target)
        os.utime(target, (number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-2", "broker-3", "broker-4"]


def test_damaged_code_is_replaced(made: Path, tmp_path: Path) -> None:
    target = Path(shutil.copytree(made, tmp_path / "broker"))
    Path(compiled.files_in(target)[LIBRARY]).write_bytes(b"")
    with TemporaryDirectory(dir=tmp_path) as work:
        compiling.keep(Path(shutil.copytree(made, Path(work) / "out")), target)
    compiled.check(target)
    assert [path.name for path in tmp_path.iterdir()] == ["broker"]
