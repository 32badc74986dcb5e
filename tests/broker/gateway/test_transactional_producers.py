"""The producers of transactional streams, without brokers: how they are made, and how they end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.gateway import transactional_producers
from broker.gateway.transactional_producers import TRANSACTION_TIMEOUT_MS, TransactionalProducers
from stele.aio import Producer
from stele.config import ClientWorld
from stele.world import RpcCode, RpcError
from tests.support.worlds import virtual


class NotingProducer:
    """Notes its options, and whether it was aborted."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self.options = options
        self.is_aborted = False

    async def abort(self) -> None:
        self.is_aborted = True


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> TransactionalProducers:
    monkeypatch.setattr(transactional_producers, "Producer", NotingProducer)
    return TransactionalProducers(cast(ClientWorld, None), lambda: "host:9092")


def taken(producers: TransactionalProducers, timeout_ms: int = 0) -> NotingProducer:
    return cast(NotingProducer, producers.take("none", "x", timeout_ms))


def test_a_transaction_has_the_time_that_its_client_asks_for(
    producers: TransactionalProducers,
) -> None:
    times = [taken(producers, each).options["transaction_timeout_ms"] for each in (5, 0)]
    assert times == [5, TRANSACTION_TIMEOUT_MS]


@virtual
async def test_as_many_streams_have_producers_as_there_may_be(
    producers: TransactionalProducers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_producers, "PRODUCERS_MAX", 2)
    first, _ = taken(producers), taken(producers)
    with pytest.raises(RpcError) as caught:
        taken(producers)
    assert caught.value.code is RpcCode.RESOURCE_EXHAUSTED

    async def close() -> None: ...

    producers.end(cast(Producer, first), close)
    taken(producers)
    await producers.close()
    assert not first.is_aborted


@virtual
async def test_a_producer_that_does_not_end_in_time_is_aborted(
    producers: TransactionalProducers,
) -> None:
    producer = taken(producers)
    producers.end(cast(Producer, producer), asyncio.Event().wait)  # type: ignore[arg-type]
    await asyncio.sleep(4)
    assert not producer.is_aborted
    await producers.close()
    assert producer.is_aborted
