"""Requests that come to no page: of other hosts, other pages, other people, and without a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route

from cli.console import fresh_settings
from console import pages
from console.app import build
from console.settings import host_in_address, is_loopback
from tests.support.console import (
    ADDRESS,
    KEY,
    TOKEN,
    Browser,
    FakeClients,
    browser,
    console_settings,
)


class NoCluster:
    """Fails the test where a refused request has come to the cluster."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the cluster was asked: {name}")


async def _browser(**changed: Any) -> AsyncIterator[Browser]:
    settings = console_settings(**changed)
    async with browser(settings, FakeClients(settings, NoCluster())) as found:
        yield found


@pytest.fixture
async def guarded() -> AsyncIterator[Browser]:
    async for each in _browser():
        yield each


@pytest.fixture
async def read_only() -> AsyncIterator[Browser]:
    async for each in _browser(is_read_only=True):
        yield each


CHANGES = [
    route.path
    for route in pages.ROUTES
    if isinstance(route, Route) and "POST" in (route.methods or ())
]
READS = [
    route.path
    for route in pages.ROUTES
    if isinstance(route, Route) and "GET" in (route.methods or ())
]


def test_there_are_changes_and_pages() -> None:
    assert len(CHANGES) >= 10
    assert len(READS) >= 15


@pytest.mark.parametrize(
    "host", ["evil.example:8088", "127.0.0.1:9999", "127.0.0.1", "localhost.evil.example:8088", ""]
)
@pytest.mark.parametrize("path", ["/", "/static/console.js", "/?key=" + KEY])
async def test_a_name_that_is_not_the_consoles_is_refused(
    guarded: Browser, host: str, path: str
) -> None:
    answer = await guarded.http.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8088", "localhost:8088", "LOCALHOST:8088", "[::1]:8088"]
)
async def test_the_consoles_own_names_are_accepted(guarded: Browser, host: str) -> None:
    cookie = f"stele_console_8088={KEY}"
    answer = await guarded.http.get("/topics/new", headers={"host": host, "cookie": cookie})
    assert answer.status_code == 200


async def test_without_the_key_there_is_no_page(guarded: Browser) -> None:
    guarded.http.cookies.clear()
    for path in (*READS, "/static/console.js"):
        for cookie in ("", "stele_console_8088=wrong", "stele_console_8088=ü"):
            answer = await guarded.http.get(path, headers={b"cookie": cookie.encode()})
            assert answer.status_code == 403, path
            assert "stele console has printed" in answer.text


async def test_the_key_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    guarded: Browser,
) -> None:
    guarded.http.cookies.clear()
    answer = await guarded.http.get("/topics/new", params={"key": KEY})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/topics/new"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert (await guarded.http.get("/topics/new")).status_code == 200


async def test_a_wrong_key_opens_nothing(guarded: Browser) -> None:
    answer = await guarded.http.get("/", params={"key": "of-yesterday"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_the_way_of_the_key_leads_to_no_other_host(guarded: Browser) -> None:
    answer = await guarded.http.get(f"{ADDRESS}//evil.example/a", params={"key": KEY})
    assert answer.headers["location"] == "/evil.example/a"


async def test_a_change_needs_the_token_of_a_form(guarded: Browser) -> None:
    for path in CHANGES:
        for fields in ({}, {"form_token": ""}, {"form_token": "wrong"}, {"form_token": "ü"}):
            answer = await guarded.http.post(path, data=fields)
            assert answer.status_code == 403, path
            assert "The form is too old" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_change_from_another_page_is_refused(
    guarded: Browser, headers: dict[str, str]
) -> None:
    for path in CHANGES:
        answer = await guarded.http.post(path, data={"form_token": TOKEN}, headers=headers)
        assert answer.status_code == 403, path
        assert "another web page" in answer.text


async def test_a_read_only_console_changes_nothing(read_only: Browser) -> None:
    for path in CHANGES:
        assert "--read-only" in await read_only.post(path, status=403)


async def test_a_get_changes_nothing(guarded: Browser) -> None:
    for path in set(CHANGES) - set(READS):
        assert (await guarded.http.get(path)).status_code == 405, path


async def test_every_answer_forbids_foreign_scripts_and_frames(guarded: Browser) -> None:
    for path in ("/topics/new", "/nothing", "/static/console.js", "/?key=wrong"):
        answer = await guarded.http.get(path)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_a_form_that_is_too_large_is_refused(guarded: Browser) -> None:
    answer = await guarded.http.post("/topics/create", content=b"a" * 4_000_001)
    assert answer.status_code == 400
    assert "4,000,000" in answer.text


@pytest.mark.parametrize("body", [b"\xff=1", b"a=%ff", b"&".join([b"a=1"] * 1001)])
async def test_a_form_that_cannot_be_read_is_refused(guarded: Browser, body: bytes) -> None:
    assert (await guarded.http.post("/topics/create", content=body)).status_code == 400


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_what_other_machines_reach_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert [host_in_address(each) for each in ("::1", "[::1]", "Box")] == ["[::1]", "[::1]", "box"]


async def test_pages_load_nothing_from_elsewhere(guarded: Browser) -> None:
    page: httpx.Response = await guarded.http.get("/topics/new")
    assert "://" not in page.text


async def test_the_page_of_a_defect_has_the_headers_of_every_page() -> None:
    settings = console_settings()
    app = build(settings, FakeClients(settings, NoCluster()))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    cookies = {settings.cookie_name: KEY}
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, cookies=cookies) as http:
        answer = await http.get("/groups")
    assert answer.status_code == 500
    assert "The console has a defect" in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


def test_every_route_only_reads_or_is_a_checked_change() -> None:
    settings = console_settings()
    app = build(settings, FakeClients(settings, NoCluster()))
    others = [each for each in app.routes if not isinstance(each, Route)]
    assert [each.path for each in others if isinstance(each, Mount)] == ["/static"]
    assert len(others) == 1
    methods = {frozenset(each.methods or ()) for each in app.routes if isinstance(each, Route)}
    assert methods == {frozenset({"GET", "HEAD"}), frozenset({"POST"})}


@pytest.mark.parametrize("path", ["..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "%2fetc%2fpasswd"])
async def test_static_files_are_those_of_one_directory(guarded: Browser, path: str) -> None:
    assert (await guarded.http.get(f"/static/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("console.example", 200),
        ("console.example:8088", 200),
        ("console.example:9443", 200),
        ("console.example:9999", 421),
        ("[2001:db8::1]", 200),
        ("a.console.example", 421),
    ],
)
async def test_a_proxy_with_tls_passes_its_host_on(host: str, expected: int) -> None:
    allowed = ["Console.example", "console.example:9443", "2001:db8::1"]
    made = fresh_settings("127.0.0.1", 8088, "127.0.0.1:1", {}, allowed_hosts=allowed)
    settings = console_settings(host_names=made.host_names, proxied_hosts=made.proxied_hosts)
    async with browser(settings, FakeClients(settings, NoCluster())) as console:
        headers = {"host": host, "cookie": f"stele_console_8088={KEY}"}
        assert (await console.http.get("/topics/new", headers=headers)).status_code == expected
        headers |= {"origin": f"https://{host}"}
        answer = await console.http.post("/topics/create", headers=headers)
        assert answer.status_code == (403 if expected == 200 else 421)
        assert ("form is too old" in answer.text) is (expected == 200)
