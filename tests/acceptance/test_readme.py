"""README.md does what it says: its commands and programs run as they stand, and its table of what
is not built agrees with what is advertised and refused."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata.config_keys import validate_topic_config
from runtime.config.node import ConfigError, load
from stele.config import ClientConfig
from stele.errors import ApiError, SteleError

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.partition("#")[0].strip()
    for language, block in BLOCKS
    for line in block.splitlines()
    if language == "" and line.startswith(".venv/bin/stele ")
]
PROGRAMS = [block for language, block in BLOCKS if language == "python"]


def run(arguments: list[str], bootstrap: str) -> str:
    # Not the JVM that tests of Spark in this process may have started.
    own = {name: value for name, value in os.environ.items() if "PYSPARK_GATEWAY" not in name}
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=180,
        cwd=ROOT,
        env={
            **own,
            "STELE_BOOTSTRAP_SERVER": bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.processes
def test_the_commands_and_programs_run_as_they_stand(bootstrap: str) -> None:
    """All commands except `stele dev`, which has its own tests: here a cluster runs already."""
    outputs = {}
    for command in COMMANDS:
        words = shlex.split(command)
        if words[1] != "dev":
            outputs[" ".join(words[1:3])] = run([sys.executable, "-m", "cli.main", *words[1:]],
                                                bootstrap)  # fmt: skip
    assert outputs["consume orders"].count("\n") == 10
    assert len(PROGRAMS) == 2
    for program in PROGRAMS:
        if "pyspark" in program and shutil.which("java") is None:
            continue
        assert "127.0.0.1:9092" in program
        outputs["last"] = run(
            [sys.executable, "-c", program.replace("127.0.0.1:9092", bootstrap)], bootstrap
        )
    if shutil.which("java") is not None:
        assert outputs["last"] == "201\n", "200 lines of the file and the one of the first program"


# ------------------------------------------------------------------------- not built yet


def refused_for_topics(name: str, value: str) -> None:
    with pytest.raises(ApiError):
        validate_topic_config(name, value)


def refused_at_start(setting: str) -> None:
    with pytest.raises(ConfigError, match="not built"):
        load("node.id=1\nprocess.roles=broker\nlog.dirs=/tmp/x\n", overrides=[setting])


def refused_kerberos() -> None:
    for name in ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"):
        refused_at_start(f"{name}=GSSAPI")
    with pytest.raises(SteleError, match="GSSAPI is not built"):
        ClientConfig(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")


PROOFS: dict[str, Callable[[], None]] = {
    "tiered storage": lambda: refused_for_topics("remote.storage.enable", "true"),
    "Kerberos (SASL/GSSAPI)": refused_kerberos,
}
ROWS = re.findall(
    r"^\| ([^|]+?) \|", README.partition("## What is not built yet")[2].partition("\n## ")[0],
    flags=re.MULTILINE,
)[1:]  # fmt: skip


def test_the_table_of_what_is_not_built_is_proven_row_by_row() -> None:
    assert list(PROOFS) == ROWS


@pytest.mark.parametrize("row", PROOFS)
def test_what_the_table_calls_not_built_is_refused(row: str) -> None:
    PROOFS[row]()
