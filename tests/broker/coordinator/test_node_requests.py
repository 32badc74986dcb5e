"""Other brokers are asked over one connection each, and get one batch at a time."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordinator.node_requests import NodeBatches, NodeConnections
from metadata.image import EMPTY
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages.end_txn import API, EndTxnRequest
from tests.support.broker_apis import Edges
from tests.support.timing import run_virtual, until


def test_what_comes_while_a_batch_is_under_way_is_the_next_one() -> None:
    async def main() -> None:
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

    run_virtual(main())


def _not_expected(items: list[str]) -> None:
    raise AssertionError(items)


def test_a_batch_that_cannot_be_sent_at_all_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
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

    run_virtual(main())
    assert "test for broker 1" in caplog.text


def test_a_broker_without_an_address_is_not_available() -> None:
    async def main() -> None:
        edges = Edges()
        nodes = NodeConnections(
            edges.network, lambda: EMPTY, listener="INTERNAL", client_id="test", timeout_s=1.0
        )
        with pytest.raises(ApiError) as refused:
            await nodes.ask(2, API, 5, EndTxnRequest())
        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        nodes.close()

    run_virtual(main())
