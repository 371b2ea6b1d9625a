"""A pipeline project is made whole, found again, and what its runs print is cut to what matters."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.new_topics import NewTopicMaker
from support.servers import Server
from support.topic_rows import by_confluent
from tidelog.base.errors import BadValue
from tidelog.cli.main import app
from tidelog.cli.pipeline import parse_seconds
from tidelog.cli.pipeline_project import find_project, make_project
from tidelog.cli.pipeline_run import RunLines, cause, shorten


def test_a_project_has_all_it_needs(tmp_path: Path) -> None:
    """P5: nothing is left to be filled in."""
    made = make_project(tmp_path / "shop", topic="orders", bootstrap="broker:9092")
    names = {str(path.relative_to(tmp_path / "shop")) for path in made}
    assert names == {
        "README.md",
        "conf/spark-defaults.conf",
        "low_latency.py",
        "produce.py",
        "spark-pipeline.yml",
        "transformations/records.py",
    }
    for path in made:
        content = path.read_text()
        assert "$" not in content, path
        if path.suffix == ".py":
            ast.parse(content)
    project = find_project(tmp_path / "shop")
    assert (project.name, project.bootstrap) == ("shop", "broker:9092")
    assert project.storage == tmp_path / "shop" / "storage"


def test_a_project_that_was_made_by_command_fills_its_topic(
    shared_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: as the command's help says, with orders and a few records that are none."""
    monkeypatch.chdir(tmp_path)
    asked = ["pipeline", "init", "shop", "--topic", "shop.orders", "-b", shared_server.address]
    said = CliRunner().invoke(app, asked).stdout.splitlines()
    assert said[-1] == "what to do next: see shop/README.md"
    assert all(Path(line).is_file() for line in said[:-1])
    done = subprocess.run(
        [sys.executable, "produce.py", "100"], cwd="shop", capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("100 records written to shop.orders\n", "")
    rows = by_confluent(shared_server.address, "shop.orders")
    orders = [json.loads(row.value or b"") for row in rows if b"no order" not in (row.value or b"")]
    assert (len(rows), len(orders)) == (100, 98)
    assert {tuple(order) for order in orders} == {("order_id", "customer", "amount")}
    assert all(row.key for row in rows)


@pytest.mark.parametrize("name", ["transformations/records.py", "low_latency.py"])
def test_a_project_reads_what_is_committed(tmp_path: Path, name: str) -> None:
    """P4: what a producer has aborted, or a pipeline that writes exactly once, is no record."""
    make_project(tmp_path / "shop", topic="orders", bootstrap="broker:9092")
    content = (tmp_path / "shop" / name).read_text()
    assert 'READ = {**BROKERS, "kafka.isolation.level": "read_committed"}' in content
    reading = content.partition("readStream.format")[2].partition("load()")[0]
    assert ".options(**READ, " in reading


@pytest.mark.parametrize(
    ("name", "topic", "why"),
    [
        ("9lives", "orders", "a letter first"),
        ("a b", "orders", "a name has letters"),
        ("shop", "no/slash", "topic no/slash"),
        ("taken", "orders", "is there already"),
        ("my projects/shop", "orders", "Spark takes no folder with ' ' in its path"),
        ("100%/shop", "orders", "Spark takes no folder with '%' in its path"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(
    tmp_path: Path, name: str, topic: str, why: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(BadValue, match=why):
        make_project(tmp_path / name, topic=topic, bootstrap="b:1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def test_a_folder_without_a_project_is_told_how_to_get_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path)])
    assert result.exit_code == 1
    assert "tidelog pipeline init NAME" in result.output
    (tmp_path / "spark-pipeline.yml").write_text("name: [")
    with pytest.raises(BadValue, match="is not YAML"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"name: \xff", "is not YAML"),
        (b"name: shop\nconfiguration: [1]", "configuration must have names and values"),
        (b"name: shop\nconfiguration: 1", "configuration must have names and values"),
    ],
)
def test_a_spec_that_is_none_is_told_in_a_line(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_bytes(content)
    result = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path)])
    assert result.exit_code == 1
    assert f"tidelog: {tmp_path / 'spark-pipeline.yml'}: {why}" in result.output


def test_records_that_were_not_written_are_not_said_to_be(
    shared_server: Server, tmp_path: Path
) -> None:
    """P5: here, as the topic takes none so large; or there is none, and nobody makes it."""
    name = "small.orders"
    NewTopicMaker(shared_server.address).again(name, max_message_bytes="1")
    make_project(tmp_path / "shop", topic=name, bootstrap=shared_server.address)
    done = subprocess.run(
        [sys.executable, "produce.py", "5"], cwd=tmp_path / "shop", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "5 of 5 records were not written to small.orders" in done.stderr


def test_master_and_remote_exclude_one_another(tmp_path: Path) -> None:
    asked = ["pipeline", "run", str(tmp_path), "--master", "local", "--remote", "sc://x:1"]
    result = CliRunner().invoke(app, asked)
    assert (result.exit_code, "--master and --remote" in result.output) == (1, True)


def test_a_pipeline_does_not_begin_anew_again_and_again(tmp_path: Path) -> None:
    asked = ["pipeline", "run", str(tmp_path), "--every", "30s", "--full-refresh"]
    result = CliRunner().invoke(app, asked)
    assert (result.exit_code, "--full-refresh and --every" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("500ms", 0.5), ("5m", 300), ("1h", 3600)]
)
def test_intervals_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "0s", "s", "-1s", "1d", "1 s x"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match="must be a time such as 30s"):
        parse_seconds(text)


def test_what_spark_says_is_told_in_fewer_words() -> None:
    when = "2026-11-15 20:37:02: "
    assert (
        shorten(when + "Flow spark_catalog.default.bronze is RUNNING.") == "20:37:02 bronze running"
    )
    assert shorten(when + "Flow spark_catalog.default.bronze is QUEUED.") is None
    assert shorten(when + "Importing /a/b.py...") is None


def test_of_a_failure_the_cause_is_told_and_not_its_pages() -> None:
    told: list[str] = []
    progress = RunLines(told.append)
    story = [
        "2026-11-15 20:37:02: Flow 'bury' has FAILED.",
        "Error: [STREAM_FAILED] Query terminated with exception:",
        '  File "/somewhere/source.py", line 72, in streamWriter',
        "tidelog.base.errors.BadValue: option topic='': must be a name",
        "=== Streaming Query ===",
        "2026-11-15 20:37:03: Flow gold is RUNNING.",
        "printed by a definition",
    ]
    progress.write("\n".join(story[:3]))
    progress.write("\n" + "\n".join(story[3:]) + "\n")
    assert told == [
        "20:37:02 'bury' failed",
        "         tidelog.base.errors.BadValue: option topic='': must be a name",
        "20:37:03 gold running",
        "printed by a definition",
    ]
    assert cause("\n".join(story[1:5])) == story[3]
    assert cause("just this\nand that") == "just this"
