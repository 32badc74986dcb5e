"""How many records a connection handles in one turn, and how many without data it bears."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from runtime.real.tls_transport import EMPTY_RECORDS, TURN_RECORDS
from tests.runtime.real.test_tls_fragments import SERVER, Pair
from tests.support.tls import AUTHORITY
from tests.support.tls_records import CIPHER, ClientRecords


@pytest.fixture
def key_log(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def shaken(key_log: Path) -> tuple[Pair, bytes, ClientRecords]:
    """A pair whose client has shaken hands, its last flight, and what encrypts its records."""
    pair = Pair(received_bytes=64 * 1024)
    context = AUTHORITY.client_context()
    context.keylog_filename = str(key_log)
    pair.client = context.wrap_bio(pair.incoming, pair.outgoing, False, "127.0.0.1")
    while not pair.is_shaken:
        pair.step()
        if not pair.is_shaken:
            await pair.deliver_all(pair.outgoing.read())
            await turns(5)
            pair.incoming.write(pair.raw.take(len(pair.raw.sent)))
    assert pair.client.cipher()[0] == CIPHER  # type: ignore[index]
    return pair, pair.outgoing.read(), ClientRecords(key_log)


async def opened(key_log: Path) -> tuple[Pair, ClientRecords]:
    pair, finished, records = await shaken(key_log)
    await pair.deliver_all(finished)
    await turns(5)
    assert pair.application.is_established
    return pair, records


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_turn_handles_a_bounded_number_of_records(key_log: Path) -> None:
    pair, records = await opened(key_log)
    sent = bytes(n % 256 for n in range(2 * TURN_RECORDS + 1))
    pair.deliver(b"".join(records.data(sent[n : n + 1]) for n in range(len(sent))))
    assert pair.application.received == sent[:TURN_RECORDS]
    assert pair.raw.is_paused
    await turns(1)
    assert pair.application.received == sent[: 2 * TURN_RECORDS]
    await turns(1)
    assert pair.application.received == sent
    assert not pair.raw.is_paused


async def test_resuming_again_and_again_makes_no_longer_turn(key_log: Path) -> None:
    pair, records = await opened(key_log)
    pair.deliver(b"".join(records.data(b"x") for _ in range(4 * TURN_RECORDS)))
    for _ in range(10):
        pair.application.transport.pause_reading()
        pair.application.transport.resume_reading()
    await turns(1)
    assert len(pair.application.received) == 2 * TURN_RECORDS


async def test_records_behind_the_handshake_wait_for_their_turn(key_log: Path) -> None:
    pair, finished, records = await shaken(key_log)
    pair.deliver(finished + b"".join(records.data(b"x") for _ in range(3 * TURN_RECORDS)))
    while not pair.application.is_established:
        await turns(1)
    assert len(pair.application.received) == TURN_RECORDS
    await turns(2)
    assert len(pair.application.received) == 3 * TURN_RECORDS


async def test_key_updates_between_data_are_borne(key_log: Path) -> None:
    pair, records = await opened(key_log)
    sent = bytearray()
    for _ in range(4):
        sent += b"".join(records.key_update() for _ in range(EMPTY_RECORDS // 2))
        sent += records.data(b"x")
    await pair.deliver_all(bytes(sent))
    await turns(3)
    assert pair.application.received == b"xxxx"
    assert not pair.raw.is_closed


@pytest.mark.parametrize("at_once", [1, 10, 1000])
async def test_a_peer_that_sends_only_key_updates_is_let_go(key_log: Path, at_once: int) -> None:
    pair, records = await opened(key_log)
    before, sent = SERVER.failures["tls"], 0
    while not pair.raw.is_closed:
        pair.deliver(b"".join(records.key_update() for _ in range(at_once)))
        sent += at_once
        await turns(3)
    assert sent <= max(at_once, EMPTY_RECORDS + TURN_RECORDS)
    assert SERVER.failures["tls"] == before + 1
    assert pair.application.received == b""


async def test_bytes_after_a_farewell_are_dropped(key_log: Path) -> None:
    pair, _ = await opened(key_log)
    pair.application.stays = True
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    await pair.deliver_all(pair.outgoing.read() + bytes(10_000))
    assert pair.application.is_ended
    held = pair.server.held_bytes
    for _ in range(100):
        await pair.deliver_all(bytes(10_000))
    assert pair.server.held_bytes == held < 64 * 1024
    pair.server.write(b"answer")  # it may still be waiting for one
    pair.incoming.write(pair.raw.take(len(pair.raw.sent)))
    assert pair.client.read(100) == b"answer"
