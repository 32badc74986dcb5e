"""A cluster that cannot be reached is a page."""

from __future__ import annotations

import asyncio
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


async def test_a_part_of_a_page_that_is_asked_for_again_shows_the_trouble() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = console_settings(bootstrap_servers=servers, timeout_s=0.3)
        async with browser(settings, ConsoleClients(settings)) as console:
            first = await console.get("/", status=503)
            searched = await console.http.get("/topics?q=a", headers={"hx-target": "list"})
            other = await console.http.get("/topics", headers={"hx-target": '"><script>'})
    # The cluster's page asks again, and is as before when the cluster is back.
    assert '<div id="live" hx-get="/" hx-trigger="every 5s"' in first
    assert '{"code":"50.","swap":true}' in first
    assert '<div id="list">' in searched.text
    assert '"><script>' not in other.text
    assert ' id="live"' not in other.text


async def test_a_cluster_that_hangs_is_a_page_in_time() -> None:
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen(100)
        servers = f"127.0.0.1:{hanging.getsockname()[1]}"
        settings = console_settings(bootstrap_servers=servers, timeout_s=0.3)
        async with browser(settings, ConsoleClients(settings)) as console:
            for path in ("/", "/topic?name=a", "/messages?topic=a", "/group?group=a", "/quotas"):
                async with asyncio.timeout(30):
                    told = await console.text(path, status=503)
                assert "no answer within 0.3 s" in told, path
