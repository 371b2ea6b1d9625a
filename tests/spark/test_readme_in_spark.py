"""The README's example of a topic in Spark prints what the README shows (P1)."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server

README = (Path(ROOT) / "README.md").read_text(encoding="utf-8")
CODE, SHOWN = next(
    found
    for found in re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    if "SparkSession" in found[0]
)


def test_the_readme_shows_what_its_example_prints(
    spark: Any, log_server: Server, new_topic: NewTopicMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None, "the example gets the session that there is"
    told = re.search(r"export PYSPARK_PYTHON=\$PWD/\.venv/bin/([\w-]+)`", README)
    assert told is not None, "what the session was set up with is told"
    assert Path(os.environ["PYSPARK_PYTHON"]).name == told[1]
    assert 0 <= CODE.find("use_this_python()\n") < CODE.index("getOrCreate"), "or set up by this"
    new_topic.again("orders", 3)
    producer = Producer({"bootstrap.servers": log_server.address})
    for number in range(6):
        value = b'{"order_id": %d, "amount": %d.5}' % (number, number * 10)
        producer.produce("orders", value, b"ada" if number % 2 else b"grace")
    assert producer.flush(60) == 0
    exec(compile(CODE.replace("127.0.0.1:9092", log_server.address), "README.md", "exec"), {})
    assert capsys.readouterr().out == SHOWN
