"""What Spark's Python processes import before the first row comes: Spark starts one after the other
and waits for each, so that they have what they need and no more.
"""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server
from tidelog.base.errors import BadValue
from tidelog.cli.connect_server import spark_home
from tidelog.spark.worker_python import use_this_python

CONNECTS = "tidelog.client.client"
READS = "tidelog.spark.reading"
SCRIPT = ROOT / "bin" / "spark-python"
MADE = """
import pickle
from pyspark import cloudpickle
from tidelog.spark.source import TidelogDataSource
options = {"kafka.bootstrap.servers": SERVERS, "subscribe": TOPIC}
options |= {"startingOffsets": "earliest", "includeHeaders": "true"}
source = TidelogDataSource(options=options)
reader = source.streamReader(source.schema())
carried = cloudpickle.dumps(reader)
"""
PLANNED = """
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
tasks = [cloudpickle.dumps(one) for one in reader.partitions(start, end)]
reader.stop()
"""
READ = """
task_reader = pickle.loads(carried)
rows = sum(batch.num_rows for one in tasks for batch in task_reader.read(pickle.loads(one)))
assert rows == 20, rows
"""


def imported_by(script: str, topic: str = "", servers: str = "127.0.0.1:9") -> set[str]:
    """The modules of a new process that has run it."""
    told = f"SERVERS, TOPIC = {servers!r}, {topic!r}\n{script}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", told]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_looking_for_formats_imports_nothing_that_connects_or_reads() -> None:
    found = imported_by("import pyspark_tidelog")
    assert "tidelog.spark.source" in found
    assert not found & {CONNECTS, READS, "tidelog.spark.sink_options", "pyarrow", "pandas"}


def test_making_a_reader_imports_nothing_that_connects_or_reads() -> None:
    found = imported_by(MADE, "any")
    assert "tidelog.spark.stream_reader" in found
    assert not found & {CONNECTS, READS, "pyarrow", "pandas"}


@pytest.fixture
def topic(log_server: Server, new_topic: NewTopicMaker) -> str:
    """20 records in two partitions."""
    name = new_topic(2)
    sender = Producer({"bootstrap.servers": log_server.address})
    for number in range(20):
        sender.produce(name, b"value", b"key", number % 2, headers={"h": b"header"})
    assert sender.flush(60) == 0
    return name


def test_planning_does_not_import_what_reads(log_server: Server, topic: str) -> None:
    found = imported_by(MADE + PLANNED, topic, log_server.address)
    assert CONNECTS in found
    assert not found & {READS, "pandas"}


def test_reading_does_not_import_pandas(log_server: Server, topic: str) -> None:
    """pyarrow imports it, where it is installed, for the first value of Python's that it takes."""
    found = imported_by(MADE + PLANNED + READ, topic, log_server.address)
    assert {READS, "pyarrow"} <= found
    assert "pandas" not in found


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment as far as the script looks at it, and its PySpark."""
    (tmp_path / "bin").mkdir()
    shutil.copy(SCRIPT, tmp_path / "bin")
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    spark = tmp_path / "lib" / "python3" / "site-packages" / "pyspark"
    spark.mkdir(parents=True)
    return spark


def python_path(script: Path, spark: Path, *entries: str) -> str:
    """What is left of it."""
    told = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"
    run = subprocess.run(
        [script, "-c", told, "an *"],
        env={"SPARK_HOME": str(spark), "PYTHONPATH": ":".join(entries)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


def test_spark_python_leaves_out_the_zip_of_the_pyspark_beside_it(environment: Path) -> None:
    script = environment.parents[3] / "bin" / SCRIPT.name
    ours = [f"{environment}/python/lib/pyspark.zip", f"{environment}/jars/spark-core.jar"]
    assert python_path(script, environment, *ours, "/a b", "/*") == "/a b:/*|an *\n"
    assert python_path(script, environment, *ours) == "|an *\n"


@pytest.mark.parametrize("where", ["opt/a/b/spark", "other/lib/python3/site-packages/pyspark"])
def test_spark_python_leaves_all_of_another_spark_where_it_is(
    environment: Path, tmp_path: Path, where: str
) -> None:
    script = environment.parents[3] / "bin" / SCRIPT.name
    other = tmp_path / where
    other.mkdir(parents=True)
    entries = [f"{other}/python/lib/pyspark.zip", "/mine"]
    assert python_path(script, other, *entries) == f"{':'.join(entries)}|an *\n"


def test_spark_s_python_processes_import_pyspark_as_it_is_installed(spark: Any) -> None:
    def where(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert Path(os.environ["PYSPARK_PYTHON"]).read_text() == SCRIPT.read_text()
    found = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert found == [str(spark_home() / "__init__.py")]


def chosen(script: str, **environment: str) -> str:
    """What Spark is told to start by a program that has run this."""
    told = f"from pyspark_tidelog import use_this_python\n{script}\nimport os\n"
    names = ("PYSPARK_PYTHON", "PYSPARK_UDS_MODE")
    command = [sys.executable, "-c", f"{told}print(*map(os.environ.get, {names}))"]
    given = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        command, env=given | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_program_says_in_a_line_that_spark_is_to_use_its_python() -> None:
    """P1: what was set for it stays, and importing alone sets nothing."""
    script = str(Path(sys.executable).with_name(SCRIPT.name))
    assert chosen("use_this_python()") == f"{script} true"
    assert chosen("use_this_python(); use_this_python()") == f"{script} true"
    assert chosen("use_this_python()", PYSPARK_PYTHON="/opt/other") == "/opt/other true"
    assert chosen("use_this_python()", PYSPARK_UDS_MODE="false") == f"{script} false"
    assert chosen("") == "None None"


def test_spark_s_python_processes_are_reached_over_unix_sockets(spark: Any) -> None:
    def families(_: int) -> list[str]:
        found = []
        for number in Path("/proc/self/fd").iterdir():
            try:
                with socket.socket(fileno=os.dup(int(number.name))) as one:
                    found.append(one.family.name)
            except OSError:
                # No socket, or the folder that was listed here.
                continue
        return found

    [found] = spark.sparkContext.parallelize([0], 1).map(families).collect()
    assert set(found) == {"AF_UNIX"}


def test_once_spark_runs_it_is_too_late_to_choose_a_python(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark is not None
    use_this_python()
    monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(BadValue, match=r"too late: Spark runs already; .* set PYSPARK_PYTHON for"):
        use_this_python()
    assert "PYSPARK_PYTHON" not in os.environ
