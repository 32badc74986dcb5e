"""Builds the project's two wheels: the client's, and the servers', which needs the client's.

The root's pyproject.toml describes both together; its table ``tool.stele-wheels`` says what of that
is the client's. A wheel is built from a copy of its rooms and from a pyproject.toml derived from
the root's, so that every dependency and the version are written once.

Usage: python -m deploy.wheels [DIRECTORY]
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stele import __version__

ROOT = Path(__file__).resolve().parent.parent

_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
_DEVELOPERS_EXTRA = "dev"


@dataclass(frozen=True, slots=True)
class Distribution:
    """What becomes one wheel."""

    metadata: dict[str, Any]  # the table ``project`` of its pyproject.toml
    rooms: list[str]
    readme: Path

    @property
    def file_name(self) -> str:
        return f"{self.metadata['name'].replace('-', '_')}-{__version__}-py3-none-any.whl"


def client() -> Distribution:
    root = _root_pyproject()
    project, its = root["project"], root["tool"]["stele-wheels"]["client"]
    requirements = {_name_of(each): each for each in project["dependencies"]}
    extras = project["optional-dependencies"]
    metadata = _metadata(
        its["name"],
        its["description"],
        project,
        [requirements[name] for name in its["dependencies"]],
        {name: extras[name] for name in its["extras"]},
    )
    return Distribution(metadata, its["rooms"], ROOT / its["readme"])


def server() -> Distribution:
    root = _root_pyproject()
    project, its = root["project"], root["tool"]["stele-wheels"]["client"]
    extras = dict(project["optional-dependencies"])
    del extras[_DEVELOPERS_EXTRA]
    metadata = _metadata(
        project["name"],
        project["description"],
        project,
        [f"{its['name']}=={__version__}", *project["dependencies"]],
        extras,
    ) | {"scripts": project["scripts"]}
    rooms = [
        pattern.removesuffix("*")
        for pattern in root["tool"]["setuptools"]["packages"]["find"]["include"]
    ]
    return Distribution(
        metadata, [room for room in rooms if room not in its["rooms"]], ROOT / project["readme"]
    )


def build(distribution: Distribution, directory: Path) -> Path:
    """Build the wheel into this directory. CalledProcessError, with its output, if that fails."""
    root = _root_pyproject()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stele-wheel-") as temporary:
        tree = Path(temporary)
        for room in distribution.rooms:
            shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(distribution.readme, tree / "README.md")
        find = {"include": [f"{room}*" for room in distribution.rooms]}
        data = root["tool"]["setuptools"]["package-data"]
        setuptools = {
            "packages": {"find": find},
            "package-data": {room: data[room] for room in distribution.rooms if room in data},
        }
        derived = {
            "build-system": root["build-system"],
            "project": distribution.metadata,
            "tool": {"setuptools": setuptools},
        }
        lines = [f"{key} = {_toml(table)}\n" for key, table in derived.items()]
        (tree / "pyproject.toml").write_text("".join(lines))
        command = [sys.executable, "-c", _BUILD, str(directory.resolve())]
        subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
    return directory / distribution.file_name


def _root_pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _metadata(
    name: str,
    description: str,
    project: Mapping[str, Any],
    dependencies: Sequence[str],
    extras: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    return {
        "name": name,
        "version": __version__,
        "description": description,
        "readme": "README.md",
        "requires-python": project["requires-python"],
        "dependencies": dependencies,
        "optional-dependencies": extras,
    }


def _name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _toml(value: Any) -> str:
    """Texts, lists and tables; what JSON writes of a text is TOML, too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def main(arguments: Sequence[str]) -> int:
    directory = Path(arguments[0]) if arguments else ROOT / "dist"
    for distribution in (client(), server()):
        try:
            print(build(distribution, directory))
        except subprocess.CalledProcessError as error:
            print(error.stdout, error.stderr, sep="\n", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
