"""How a listener's certificate is exchanged: by files, by configuration, and by both at once."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import security.renewal
from runtime.real import tls_listener
from runtime.real.tls_listener import RealServerTls
from stele.security.client_security import Store, TlsSettings
from stele.security.stores import read_key_store
from tests.runtime.real.test_tls_fragments import Inline
from tests.support.tls import AUTHORITY, Authority, in_files, listener, overwrite

HOUR = datetime.timedelta(hours=1)


class Held(Executor):
    """Runs what the test says, when it says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        waiting: Future[Any] = Future()
        self.waiting.append((waiting, lambda: fn(*args, **kwargs)))
        return waiting

    def run_last(self) -> None:
        waiting, work = self.waiting.pop()
        waiting.set_result(work())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def serves(tls: RealServerTls, store: Store) -> bool:
    return tls.certificate == read_key_store(store).certificate


@pytest.mark.parametrize("looks_first", [True, False])
async def test_a_look_at_the_files_undoes_no_exchange(tmp_path: Path, looks_first: bool) -> None:
    old = in_files(tmp_path, AUTHORITY.key_store("localhost"))
    new = in_files(tmp_path, AUTHORITY.key_store("localhost"))
    executor = Held()
    tls = RealServerTls(listener(keystore=old), executor)
    overwrite(old, AUTHORITY.key_store("localhost"))
    look = asyncio.create_task(tls.refresh())
    await turns()
    if looks_first:
        executor.run_last()
        await turns()
    exchange = asyncio.create_task(tls.exchange(TlsSettings(keystore=new)))
    await turns()
    while executor.waiting:
        executor.run_last()
        await turns()
    assert await exchange is None
    await look
    assert serves(tls, new)


@pytest.mark.parametrize("by_configuration", [True, False])
async def test_a_certificate_that_is_valid_later_is_taken_later(
    tmp_path: Path,
    by_configuration: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, later = AUTHORITY.key_store("localhost"), AUTHORITY.key_store("localhost", valid_in=HOUR)
    file = in_files(tmp_path, old)
    tls = RealServerTls(listener(keystore=file), Inline())
    if by_configuration:
        assert "is valid from" in (await tls.exchange(TlsSettings(keystore=later)) or "")
    else:
        overwrite(file, later)
    for _ in range(3):
        await tls.refresh()
        assert "is valid from" in (tls.refusal or "")
        assert serves(tls, old)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]  # said once

    def in_two_hours(old: Any, new: Any, now: datetime.datetime, **allows: bool) -> str | None:
        return security.renewal.refusal(old, new, now + 2 * HOUR, **allows)

    monkeypatch.setattr(tls_listener, "refusal", in_two_hours)
    await tls.refresh()
    assert tls.refusal is None
    assert serves(tls, later)


async def test_each_new_reason_of_a_refusal_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = in_files(tmp_path, AUTHORITY.key_store("localhost"))
    tls = RealServerTls(listener(keystore=file), Inline())
    for bad in (Store(key="half writ"), AUTHORITY.key_store("localhost", valid_in=HOUR)):
        overwrite(file, bad)
        await tls.refresh()
        await tls.refresh()
    assert len(caplog.records) == 2
    assert "is neither PEM nor PKCS12" in caplog.messages[0]
    assert "is valid from" in caplog.messages[1]


async def test_nodes_must_believe_the_new_certificate(tmp_path: Path) -> None:
    """The keystore of another authority may come before the trust store that has it."""
    old, other = AUTHORITY.key_store("localhost"), Authority("other")
    new = other.key_store("localhost")
    keys = in_files(tmp_path, old)
    trust = in_files(tmp_path, AUTHORITY.trust_store)
    settings = listener(keystore=keys, client_auth="required", is_shown_to_nodes=True)
    settings = replace(settings, tls=replace(settings.tls, truststore=trust))
    tls = RealServerTls(settings, Inline())
    overwrite(keys, new)
    await tls.refresh()
    assert serves(tls, old)
    assert "would refuse the new certificate as that of a server: unable to get" in (
        tls.refusal or ""
    )
    overwrite(trust, Store(certificates=AUTHORITY.pem + other.pem))
    await tls.refresh()
    assert tls.refusal is None
    assert serves(tls, new)


@pytest.mark.parametrize("is_shown_to_nodes", [True, False])
async def test_a_certificate_that_no_node_believed_before_is_exchanged(
    tmp_path: Path, is_shown_to_nodes: bool
) -> None:
    """Clients may know another authority than the one that signs their own certificates."""
    of_servers = Authority("of servers")
    keys = in_files(tmp_path, of_servers.key_store("localhost"))
    tls = RealServerTls(
        listener(keystore=keys, client_auth="required", is_shown_to_nodes=is_shown_to_nodes),
        Inline(),
    )
    new = of_servers.key_store("localhost")
    overwrite(keys, new)
    await tls.refresh()
    assert tls.refusal is None
    assert serves(tls, new)
