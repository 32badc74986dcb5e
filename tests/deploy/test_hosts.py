"""docs/hosts.md and the systemd unit: what a node is given there is what a node takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from runtime.config.node import load

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/stele.service"
FILES = [
    block
    for block in re.findall(
        r"^```\w*\n(.*?)^```$", (ROOT / "docs/hosts.md").read_text(), re.MULTILINE | re.DOTALL
    )
    if "node.id=" in block
]


@pytest.mark.parametrize("text", FILES, ids=["broker", "controller"])
def test_a_node_takes_the_settings_of_the_page(text: str, caplog: pytest.LogCaptureFixture) -> None:
    config = load(text, environment={})
    assert config.log_dirs == ("/var/lib/stele/data",)
    assert not caplog.records, "no setting is unknown"


def test_the_unit_may_write_where_the_page_puts_the_data() -> None:
    unit = UNIT.read_text()
    assert "StateDirectory=stele\n" in unit
    assert "ExecStart=/opt/stele/bin/stele server /etc/stele/server.properties\n" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "stele.service"
    copy.write_text(UNIT.read_text().replace("/opt/stele/bin/stele", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60
    )
    assert "stele.service" not in done.stderr, done.stderr
