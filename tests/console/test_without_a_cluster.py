"""A cluster that cannot be reached is a page."""

from __future__ import annotations

import logging
import socket

import pytest

from console.clients import ConsoleClients
from tests.support.console import browser, console_settings


@pytest.mark.parametrize("path", ["/", "/topics", "/messages?topic=a", "/connections", "/groups"])
async def test_an_unreachable_cluster_is_a_page(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = console_settings(bootstrap_servers=servers, timeout_s=0.3)
        with caplog.at_level(logging.ERROR):
            async with browser(settings, ConsoleClients(settings)) as console:
                told = await console.text(path, status=503)
    assert servers in told
    assert "--bootstrap-server" in told
    assert "Traceback" not in caplog.text
