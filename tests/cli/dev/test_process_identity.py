"""A process that was written down, and the one that has its number now."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cli.dev import process_identity
from cli.dev.process_identity import ProcessIdentity


@pytest.fixture(params=["linux", "elsewhere"])
def sleeper(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    if request.param == "elsewhere":
        monkeypatch.setattr(process_identity, "_IS_LINUX", False)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_itself_until_it_ends(sleeper: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity is not None
    assert identity == ProcessIdentity.of(sleeper.pid)
    assert identity.is_alive()
    assert identity.send(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive(), "nothing but its exit code is left of it"
    sleeper.wait()
    assert not identity.is_alive()
    assert not identity.send(signal.SIGKILL)


def test_another_process_with_the_number_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity is not None
    earlier = dataclasses.replace(identity, started=f"not {identity.started}")
    assert not earlier.is_alive()
    assert not earlier.send(signal.SIGKILL)
    assert sleeper.poll() is None
