"""The command: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from cli import main
from cli.console import fresh_settings

DEAD = "127.0.0.1:1"


def test_an_address_that_others_reach_needs_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["console", "--host", "0.0.0.0", "-b", DEAD]) == main.EXIT_USAGE
    assert "--listen-elsewhere" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main.run(["console", "--port", port, "-b", DEAD]) == main.EXIT_FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_the_printed_address_is_one_that_a_browser_can_call(host: str) -> None:
    settings = fresh_settings(host, 8088, DEAD, {})
    assert settings.address.startswith("http://127.0.0.1:8088/")
    assert not settings.is_own_host("0.0.0.0:8088")
    proxied = fresh_settings(host, 8088, DEAD, {}, allowed_hosts=["stele.example"])
    assert proxied.address.startswith("http://stele.example:8088/")


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(number: signal.Signals) -> None:
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from cli.__main__ import main; main()"
    command = [sys.executable, "-c", program, "console", "-b", DEAD, "--port", "0"]
    command += ["--page-timeout", "0.3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as console:
        assert console.stdout is not None
        address = next(each.strip() for each in console.stdout if "http://" in each)
        refused = address.partition("?")[0]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(refused)
        console.send_signal(number)
        _, errors = console.communicate()
    assert errors == ""
    assert console.returncode == 0
