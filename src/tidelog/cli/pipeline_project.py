"""A pipeline project on disk: made from the template beside this file, and found again."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import is_legal_topic

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
BOOTSTRAP: Final = "pipeline.bootstrap"
_SUFFIX: Final = ".template"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FILE: Final = "file://"
_NO_PATH: Final = re.compile(r"""[\x00-\x20"#$%'*;<>?\[\\\]^`{|}]""")
"""What Spark encodes in a path, so that its checkpoints are in another folder; and what ends
something where the path stands in a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    spec: Path
    name: str
    storage: Path | None
    """None if its checkpoints are not in a folder of this machine."""
    configuration: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return self.spec.parent

    @property
    def bootstrap(self) -> str | None:
        return self.configuration.get(BOOTSTRAP)


def make_project(folder: Path, *, topic: str, bootstrap: str) -> list[Path]:
    """Its files, in a folder that must not be there yet or be empty."""
    if not _NAME.fullmatch(folder.name):
        raise BadValue(
            f"project {folder.name}: a name has letters, digits, - and _, a letter first"
        )
    if not is_legal_topic(topic) or "$" in topic:
        raise BadValue(f"topic {topic}: a name has letters, digits, ., _ and -")
    place = folder.absolute()
    unfit = _NO_PATH.search(str(place))
    if unfit:
        raise BadValue(f"{place}: Spark takes no folder with {unfit[0]!r} in its path")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadValue(f"{folder}: is there already; choose another name")
    template = Path(__file__).with_name("pipeline_template")
    values = {"name": folder.name, "topic": topic, "bootstrap": bootstrap, "folder": str(place)}
    made = []
    for source in sorted(template.rglob(f"*{_SUFFIX}")):
        target = place / source.relative_to(template).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        content = Template(source.read_text(encoding="utf-8")).substitute(values)
        target.write_text(content, encoding="utf-8")
        made.append(target)
    return made


def find_project(folder: Path) -> Project:
    for name in SPEC_NAMES:
        if (folder / name).is_file():
            return read_project(folder / name)
    raise BadValue(
        f"{folder}: there is no {SPEC_NAMES[0]}: name the folder of a project, "
        "or make one with: tidelog pipeline init NAME"
    )


def read_project(spec: Path) -> Project:
    import yaml  # of the extra `spark`

    try:
        content: Any = yaml.safe_load(spec.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadValue(f"{spec}: is not YAML: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise BadValue(f"{spec}: must have a name")
    storage = str(content.get("storage", ""))
    configuration = content.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise BadValue(f"{spec}: configuration must have names and values")
    return Project(
        spec=spec.absolute(),
        name=content["name"],
        storage=Path(storage.removeprefix(_FILE)) if storage.startswith(_FILE) else None,
        configuration={str(key): str(value) for key, value in configuration.items()},
    )
