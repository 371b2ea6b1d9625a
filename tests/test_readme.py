"""The README's example does what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_readme_example_prints_what_the_readme_shows(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, "the README has an example and what it prints"
    code = found[1].replace("/tmp/tidelog-readme", str(tmp_path / "log"))
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    shown, printed = (re.sub(r"'timestamp': \d+", "", text) for text in (found[2], ran.stdout))
    assert printed == shown
