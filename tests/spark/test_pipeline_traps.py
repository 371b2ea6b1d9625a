"""Trap 13 (`spark.md`), what Spark's declarative pipelines do not do: why a project has a `conf`
and runs at one Connect server that stays. What takes whole runs to show is left out.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import pipelines
from pyspark.errors import PySparkException

from tidelog.cli.connect_server import spark_home
from tidelog.spark.worker_python import worker_variables

ALL_THERE_IS = {
    "append_flow",
    "create_auto_cdc_flow",
    "create_sink",
    "create_streaming_table",
    "materialized_view",
    "table",
    "temporary_view",
}
CATALOG = "spark.sql.catalogImplementation"


def test_trap_13_pipelines_refuse_a_master(tmp_path: Path) -> None:
    """So a Connect server is started on it."""
    ended = subprocess.run(
        [spark_home() / "bin" / "spark-pipelines", "run", "--master", "local[1]"],
        cwd=tmp_path,
        env={**os.environ, **worker_variables(), "SPARK_HOME": str(spark_home())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode != 0
    assert "Remote cannot be specified with master" in ended.stderr


def test_trap_13_there_is_no_sink_for_each_batch_and_there_are_no_expectations() -> None:
    """What was expected of records is asked in the transformations, and leads to dead letters."""
    assert set(pipelines.__all__) == ALL_THERE_IS


def test_trap_13_a_definition_may_not_change_its_session() -> None:
    from pyspark.pipelines.block_session_mutations import block_session_mutations
    from pyspark.sql.connect.conf import RuntimeConf

    nowhere: Any = None
    with (
        block_session_mutations(),
        pytest.raises(PySparkException, match="SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"),
    ):
        RuntimeConf(nowhere).set("spark.sql.shuffle.partitions", "1")


def test_trap_13_a_session_that_runs_cannot_choose_its_catalog(spark: Any) -> None:
    """What stands in `spark-pipeline.yml` is set in a session of a server that runs. In memory, as
    here, a catalog is gone with its server."""
    assert spark.conf.get(CATALOG) == "in-memory"
    assert not spark.conf.isModifiable(CATALOG)
    with pytest.raises(PySparkException, match=CATALOG):
        spark.conf.set(CATALOG, "hive")


def connect(jvm: Any, folder: Path, options: str) -> Any:
    """As the `conf` of a project does it."""
    jvm.java.lang.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")
    address = f"jdbc:derby:;databaseName={folder}/catalog;{options}"
    return jvm.java.sql.DriverManager.getConnection(address)


OTHER_PROCESS = """
import sys
from pyspark.java_gateway import launch_gateway

gateway = launch_gateway()
try:
    gateway.jvm.java.sql.DriverManager.getConnection(sys.argv[1])
    print("connected")
except Exception as error:
    print(error)
gateway.shutdown()
"""


def test_trap_13_one_process_at_a_time_has_the_catalog(spark: Any, tmp_path: Path) -> None:
    """So pipeline, counts and audit share one server."""
    ours = connect(spark._jvm, tmp_path, "create=true")
    try:
        said = subprocess.run(
            [sys.executable, "-c", OTHER_PROCESS, f"jdbc:derby:{tmp_path}/catalog"],
            cwd=tmp_path,
            env={**os.environ, **worker_variables()},
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
    finally:
        ours.close()
        with pytest.raises(Exception, match="shutdown"):
            connect(spark._jvm, tmp_path, "shutdown=true")
    assert "Another instance of Derby may have already booted the database" in said
