"""Jars from Maven Central, by Ivy, which PySpark contains."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

CACHE: Final = Path.home() / ".cache" / "stele-bench"
"""Where fetched jars are kept."""

_FETCH_S: Final = 600.0
_LINES: Final = 5


class MavenError(Exception):
    """Jars cannot be fetched. The text says what to do."""


class Coordinates(NamedTuple):
    """What Maven calls a module."""

    group: str
    name: str
    version: str

    def __str__(self) -> str:
        return ":".join(self)


def fetched(name: str, modules: Iterable[Coordinates], directory: Path = CACHE) -> Path:
    """The folder of that name in the directory, with the jars of the modules and of all that they
    need. They are fetched unless the folder is there. Raises MavenError."""
    if shutil.which("java") is None:
        raise MavenError(
            "this needs Java 17 or later: install one, e.g. apt install openjdk-17-jre"
        )
    wanted = directory / name
    if wanted.exists():
        return wanted
    directory.mkdir(parents=True, exist_ok=True)
    # An interrupted run leaves nothing that would be taken for whole.
    with tempfile.TemporaryDirectory(dir=directory, prefix="fetching-") as folder:
        part = Path(folder)
        for module in modules:
            _retrieve(module, part)
        (part / "lib").rename(wanted)
    return wanted


def _retrieve(module: Coordinates, directory: Path) -> None:
    arguments = ("-cache", f"{directory}/cache", "-confs", "default", "-dependency", *module)
    pattern = f"{directory}/lib/[artifact]-[revision](-[classifier]).[ext]"
    done = subprocess.run(
        ["java", "-jar", _ivy(), *arguments, "-retrieve", pattern],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_FETCH_S,
        check=False,
    )
    if done.returncode != 0:
        raise MavenError(
            f"{module} cannot be fetched: is Maven Central reachable? Jars that were fetched "
            f"elsewhere may be put into a folder of {directory.parent}. Ivy's last lines:\n"
            + "\n".join(done.stdout.strip().splitlines()[-_LINES:])
        )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MavenError("jars are fetched with PySpark's Ivy: pip install 'stele-log[spark]'")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
