"""Builds the project's three wheels: the stubs of gRPC, the client's, which needs them, and the
servers', which needs the client's.

The root's pyproject.toml describes all of them together; its table ``tool.stele-wheels`` says what
of that is whose. A wheel is built from a copy of its folders and from a pyproject.toml derived from
the root's, so that every dependency and the version are written once.

The stubs are the messages in ``stele/wire/v1`` and the service stubs of ``grpc_tools``, which only
this wheel has. Our own client uses the messages alone. The folder is that of the client's package.
Without the client it has no ``__init__`` above it, and Python takes ``stele`` for a namespace.

Usage: python -m deploy.wheels [DIRECTORY]
"""

from __future__ import annotations

import importlib.metadata
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

from cli.commit import commit_of_checkout
from stele import __version__

ROOT = Path(__file__).resolve().parent.parent

_BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
_NO_COMMIT = "= None\n"
_DEVELOPERS_EXTRA = "dev"


@dataclass(frozen=True, slots=True)
class Distribution:
    """What becomes one wheel."""

    metadata: dict[str, Any]  # the table ``project`` of its pyproject.toml
    folders: list[str]
    readme: Path
    left_out: str = ""
    """A folder that belongs to another wheel."""
    services: tuple[str, ...] = ()
    """The files of the IDL whose service stubs are made. They go into the one folder."""

    @property
    def rooms(self) -> list[str]:
        return [folder.partition("/")[0] for folder in self.folders]

    @property
    def file_name(self) -> str:
        return f"{self.metadata['name'].replace('-', '_')}-{__version__}-py3-none-any.whl"


def protos() -> Distribution:
    root = _root_pyproject()
    project, its = root["project"], root["tool"]["stele-wheels"]["protos"]
    requirements = _requirements(project)
    # Service stubs refuse an older grpcio than that of their compiler.
    grpcio = f"grpcio>={importlib.metadata.version('grpcio-tools')}"
    metadata = _metadata(
        its["name"],
        its["description"],
        project,
        [grpcio, *(requirements[name] for name in its["dependencies"])],
        {},
    )
    return Distribution(
        metadata, [its["folder"]], ROOT / its["readme"], services=tuple(its["services"])
    )


def client() -> Distribution:
    root = _root_pyproject()
    project, its = root["project"], root["tool"]["stele-wheels"]["client"]
    stubs = root["tool"]["stele-wheels"]["protos"]
    requirements = _requirements(project)
    extras = project["optional-dependencies"]
    metadata = _metadata(
        its["name"],
        its["description"],
        project,
        [
            f"{stubs['name']}=={__version__}",
            *(requirements[name] for name in its["dependencies"]),
        ],
        {name: extras[name] for name in its["extras"]},
    )
    return Distribution(metadata, its["rooms"], ROOT / its["readme"], left_out=stubs["folder"])


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
        for folder in distribution.folders:
            shutil.copytree(
                ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__")
            )
        if distribution.left_out:
            shutil.rmtree(tree / distribution.left_out)
        write_commit(tree)
        if distribution.services:
            _make_services(distribution.services, tree / distribution.folders[0])
        shutil.copy(distribution.readme, tree / "README.md")
        packages = [folder.replace("/", ".") for folder in distribution.folders]
        data = root["tool"]["setuptools"]["package-data"]
        setuptools = {
            "packages": {"find": {"include": [f"{package}*" for package in packages]}},
            "package-data": {package: data[package] for package in packages if package in data},
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


def write_commit(tree: Path, checkout: Path = ROOT) -> None:
    """Into the wheel that has the command line, if it is built from a checkout."""
    commit, built_from = commit_of_checkout(checkout), tree / "cli" / "built_from.py"
    if commit is not None and built_from.exists():
        text = built_from.read_text()
        assert text.endswith(_NO_COMMIT), "the last line of cli/built_from.py says no commit"
        built_from.write_text(text.removesuffix(_NO_COMMIT) + f"= {commit!r}\n")


def _make_services(names: Sequence[str], folder: Path) -> None:
    """The service stubs of these files of the IDL."""
    with tempfile.TemporaryDirectory(prefix="stele-stubs-") as temporary:
        protos = [f"stele/v1/{name}.proto" for name in names]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}"]
        command += [f"--grpc_python_out={temporary}", *protos]
        subprocess.run(command, check=True, capture_output=True, text=True)
        for path in Path(temporary).rglob("*_pb2_grpc.py"):
            text = path.read_text().replace("from stele.v1 import ", "from stele.wire.v1 import ")
            (folder / path.name).write_text(text)


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


def _requirements(project: Mapping[str, Any]) -> dict[str, str]:
    """The requirements of the whole project, by name."""
    return {_name_of(each): each for each in project["dependencies"]}


def _name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _toml(value: Any) -> str:
    """Texts, lists and tables; what JSON writes of a text is TOML, too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def main(arguments: Sequence[str]) -> int:
    directory = Path(arguments[0]) if arguments else ROOT / "dist"
    for distribution in (protos(), client(), server()):
        try:
            print(build(distribution, directory))
        except subprocess.CalledProcessError as error:
            print(error.stdout, error.stderr, sep="\n", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
