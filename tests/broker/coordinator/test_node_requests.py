"""Other brokers are asked over one connection each, and get one batch at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.coordinator import node_requests
from broker.coordinator.node_requests import NodeBatches, NodeConnections
from metadata.image import EMPTY
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages.end_txn import API, EndTxnRequest
from tests.support.broker_apis import Edges
from tests.support.timing import until
from tests.support.worlds import virtual


@virtual
async def test_what_comes_while_a_batch_is_under_way_is_the_next_one() -> None:
    sent: list[tuple[int, list[str]]] = []
    gates = {broker: asyncio.Event() for broker in (1, 2)}

    async def send(broker_id: int, items: list[str]) -> list[str]:
        sent.append((broker_id, items))
        await gates[broker_id].wait()
        return items[2:]

    batches = NodeBatches("test", send, _not_expected)
    batches.add(1, "a")
    await until(lambda: len(sent) == 1)
    for item in "bcd":
        batches.add(1, item)
    batches.add(2, "x")
    await until(lambda: len(sent) == 2)
    assert sent == [(1, ["a"]), (2, ["x"])], "brokers do not wait for one another"
    assert batches.waiting == 3
    gates[1].set()
    await until(lambda: len(sent) == 4)
    assert sent[2:] == [(1, ["b", "c", "d"]), (1, ["d"])], "the rest comes first"
    batches.add(1, "e")
    await until(lambda: len(sent) == 5)
    assert sent[-1] == (1, ["e"])
    await batches.stop()


def _not_expected(items: list[str]) -> None:
    raise AssertionError(items)


@virtual
async def test_a_batch_that_cannot_be_sent_at_all_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[list[str]] = []
    failed: list[str] = []

    async def send(broker_id: int, items: list[str]) -> list[str]:
        sent.append(items)
        if items == ["a"]:
            raise KeyError("a bug")
        return []

    batches = NodeBatches("test", send, failed.extend)
    batches.add(1, "a")
    await until(lambda: failed == ["a"])
    batches.add(1, "b")
    await until(lambda: sent == [["a"], ["b"]])

    assert "test for broker 1" in caplog.text


class Connection:
    """To a broker that says how often it was connected to."""

    opened: list[Connection] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.is_closed = False
        self.opened.append(self)

    @classmethod
    async def open(cls, *arguments: object) -> Connection:
        return cls()

    async def request(self, *arguments: object, timeout_s: float) -> int:
        return self.opened.index(self)

    def close(self) -> None:
        self.is_closed = True


@virtual
async def test_a_connection_is_used_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = Edges()
    Connection.opened.clear()
    monkeypatch.setattr(node_requests, "KafkaConnection", Connection)
    nodes = NodeConnections(
        edges.network,
        lambda: edges.publisher.image,
        listener="INTERNAL",
        client_id="test",
        timeout_s=1.0,
    )

    async def ask(broker_id: int) -> Any:
        return await nodes.ask(broker_id, API, 5, EndTxnRequest())

    assert [await ask(2), await ask(2), await ask(3)] == [0, 0, 1]
    Connection.opened[0].close()
    assert [await ask(2), await ask(3)] == [2, 1]
    nodes.close()
    assert all(each.is_closed for each in Connection.opened)
    with pytest.raises(ApiError) as refused:
        await ask(99)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


@virtual
async def test_a_broker_without_an_address_is_not_available() -> None:
    edges = Edges()
    nodes = NodeConnections(
        edges.network, lambda: EMPTY, listener="INTERNAL", client_id="test", timeout_s=1.0
    )
    with pytest.raises(ApiError) as refused:
        await nodes.ask(2, API, 5, EndTxnRequest())
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    nodes.close()
