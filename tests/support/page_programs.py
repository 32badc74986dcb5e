"""The programs of docs/grpc.md, run as they stand there, with stubs from ``proto/`` alone.

Those in Python import from the wheel ``stele-protos`` (tests/stele/test_wheel.py runs one with it).
The page says from where they import stubs that were compiled: these are run here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GO_TOOLS = ("go", "protoc-gen-go", "protoc-gen-go-grpc")
NODE_PACKAGES = ("@grpc/grpc-js@1.14", "@grpc/proto-loader@0.8")
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "GOPROXY",
    "GOFLAGS",
    "GOCACHE",
    "GOMODCACHE",
    "GONOSUMDB",
    "GOSUMDB",
)


def program(language: str) -> str:
    """The one program in this language."""
    page = (ROOT / "docs/grpc.md").read_text()
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def run(
    *command: str,
    directory: Path,
    timeout_s: float = 60,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command says that must end well."""
    own = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**own, "PYTHONPATH": str(directory), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def compile_for_python(directory: Path) -> None:
    """By the command that the page tells."""
    page = (ROOT / "docs/grpc.md").read_text()
    (told,) = re.findall(r"`python (-m grpc_tools\.protoc [^`]*)`", page)
    arguments = [each.replace("-Iproto", f"-I{ROOT / 'proto'}") for each in told.split()]
    run(sys.executable, *arguments, directory=directory)
    for package in ("stele", "stele/v1"):
        # Where the package `stele` of this repository is installed, only a package hides it.
        (directory / package / "__init__.py").touch()


def with_compiled_stubs(source: str) -> str:
    return source.replace("from stele.wire.v1 import", "from stele.v1 import")


def install_for_node(directory: Path) -> None:
    """Skips the test without Node.js or its packages."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not installed")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES]
    try:
        run(*install, directory=directory, timeout_s=120)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the packages of gRPC: {error}")


def build_for_go(source: str, directory: Path) -> None:
    """Make ``thin`` by the commands of the page. Skips the test without Go or its modules."""
    missing = [each for each in GO_TOOLS if shutil.which(each) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    page = (ROOT / "docs/grpc.md").read_text()
    (told,) = re.findall(r"^protoc -Iproto (.*?\.proto)$", page, re.MULTILINE | re.DOTALL)
    protoc = f"{sys.executable} -m grpc_tools.protoc -I{ROOT / 'proto'}"
    run("go", "mod", "init", "thin", directory=directory)
    run("sh", "-c", f"{protoc} {told}", directory=directory)
    (directory / "main.go").write_text(source)
    try:
        run("go", "mod", "tidy", directory=directory, timeout_s=120)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"go cannot fetch the modules of gRPC: {error}")
    run("go", "build", "-o", "thin", ".", directory=directory, timeout_s=300)
