"""``stele dev --console``: the pages of a cluster, served by its owner until both end."""

from __future__ import annotations

import http.cookiejar
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.acceptance.test_command_line import (
    assert_none_left,
    leftovers,
    one_line,
    read_until,
    start,
    stele,
)
from tests.acceptance.test_dev_detached import COMBINED, record_in, status_of

pytest.importorskip("uvicorn")
pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("leftovers")]

__all__ = ["leftovers"]

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?key=\S+")


def browser_at(address: str) -> Callable[[str], str]:
    """It opens the address with its key, and then pages by their paths."""
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    parts = urlsplit(address)

    def page(path: str) -> str:
        with opener.open(f"{parts.scheme}://{parts.netloc}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    page(f"/?{parts.query}")
    return page


def is_closed(address: str) -> bool:
    port = urlsplit(address).port
    assert port is not None
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


def test_a_detached_cluster_serves_its_console_until_it_is_stopped(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    named = ("--dir", str(directory))
    begun = stele("dev", "--detach", "--console", *COMBINED, *named)
    assert begun.returncode == 0, begun
    (address,) = ADDRESS.findall(begun.stdout.decode())
    page = browser_at(address)
    servers = record_in(directory).bootstrap_servers
    assert stele("topic", "create", "seen", bootstrap=servers).returncode == 0
    assert "seen" in page("/topics")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.partition("?")[0])

    assert status_of(directory, 0)["console"] == address
    assert f"console {address}" in stele("dev", "status", *named).stdout.decode()
    assert address.partition("key=")[2] not in (directory / "dev.log").read_text()
    assert (directory / "dev.json").stat().st_mode & 0o077 == 0
    assert "--console" in record_in(directory).arguments

    stopped = stele("dev", "stop", *named)
    assert stopped.returncode == 0, stopped
    assert is_closed(address)
    assert status_of(directory, 3)["console"] is None
    assert_none_left(directory)


def test_a_secure_cluster_shows_its_users_in_the_console(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    process = start("dev", "--console", "--secure", *COMBINED, "--dir", str(directory))
    said = read_until(process, "Ctrl-C stops the cluster")
    (address,) = ADDRESS.findall(said)
    access = browser_at(address)("/access")
    assert "User:app" in access
    assert "SCRAM-SHA-512" in access
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert is_closed(address)
    assert_none_left(directory)


def test_the_console_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    assert stele("dev", "--detach", "--console", *COMBINED, "--dir", str(directory)).returncode == 0
    address = status_of(directory, 0)["console"]
    assert not is_closed(address)
    assert stele("dev", "stop", "--kill", "--dir", str(directory)).returncode == 0
    assert is_closed(address)
    assert_none_left(directory)


def test_a_taken_port_of_the_console_is_said_before_any_node_starts(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        base = str(taken.getsockname()[1] - 400)
        arguments = ("--combined", "--base-port", base, "--dir", str(directory))
        said = one_line(stele("dev", "--detach", "--console", *arguments))
    assert f"127.0.0.1:{int(base) + 400}" in said
    assert "--base-port" in said
    assert not list(directory.glob("*/node.log"))
    assert os.listdir(directory)
    assert_none_left(directory)
