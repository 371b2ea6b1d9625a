"""Spark's own Kafka connector beside us: its jars through Maven, and the PySpark it is made for.

`SparkHome.find()` is the way in: it makes a virtual environment and fetches the jars once, into a
folder outside the repository (`TIDELOG_SPARK_PEER`, or `spark-peer` in the temporary folder). It is
None, with the reason said, where that cannot be done. Nothing in the product or its tests needs it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

PYSPARK = "pyspark==4.2.0"
"""The connector is not published for a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkHome:
    folder: Path

    @classmethod
    def find(cls) -> "SparkHome | None":
        default = Path(tempfile.gettempdir()) / "spark-peer"
        home = cls(folder=Path(os.environ.get("TIDELOG_SPARK_PEER", default)))
        for program in ("java",) if home.is_complete else ("java", "mvn"):
            if shutil.which(program) is None:
                why = f"there is no `{program}` here"
                print(f"Spark's Kafka connector is not at hand: {why}", file=sys.stderr)
                return None
        return home if home.is_complete or home._fetch() else None

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def jars(self) -> str:
        return ",".join(sorted(str(path) for path in (self.folder / "jars").glob("*.jar")))

    @property
    def is_complete(self) -> bool:
        return (self.folder / "complete").exists()

    def _fetch(self) -> bool:
        print(f"{PYSPARK} and the connector's jars are fetched, once", file=sys.stderr)
        venv.create(self.folder / "venv", with_pip=True)
        pom = Path(__file__).with_name("spark-pom.xml")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={self.folder / 'jars'}"]
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in (["mvn", "-q", "-B", "-f", str(pom), *goal], [*pip, PYSPARK]):
            if subprocess.run(command, check=False).returncode != 0:
                why = f"`{command[0]}` could not fetch it"
                print(f"Spark's Kafka connector is not at hand: {why}", file=sys.stderr)
                return False
        (self.folder / "complete").touch()
        return True
