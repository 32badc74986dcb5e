"""A node that its peers refuse says so in its own log, and not at each call."""

from __future__ import annotations

import logging

import pytest

from runtime.config.addresses import NamedAddress
from runtime.quorum.refusals import AGAIN_S, CLOSED_MAX, RefusalLog
from stele.security.pem import StoreError
from stele.world import RpcCode, RpcError
from tests.support.worlds import virtual

PEER = NamedAddress("CONTROLLER", "c2.example", 9093)
CLOSED = RpcError(RpcCode.UNAVAILABLE, "failed to connect; last error: Socket closed")
DENIED = RpcError(RpcCode.PERMISSION_DENIED, "User:x may not CLUSTER_ACTION the cluster")


def of_store() -> RpcError:
    try:
        raise RpcError(RpcCode.UNAVAILABLE, "/a.pem: no such file") from StoreError("no such file")
    except RpcError as error:
        return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DENIED, "it refuses this node: User:x may not CLUSTER_ACTION the cluster"),
        (of_store(), "this node cannot call it: /a.pem: no such file"),
        (
            RpcError(
                RpcCode.UNAVAILABLE,
                "last error: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            ),
            "the server's certificate is not accepted: certificate has expired",
        ),
        (
            RpcError(RpcCode.UNAVAILABLE, "UNAUTHENTICATED: Hostname Verification Check failed."),
            "does not name 'c2.example', where its gRPC port is",
        ),
        (RpcError(RpcCode.UNAVAILABLE, "Connection refused"), None),
        (RpcError(RpcCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), None),
        (CLOSED, None),
    ],
)
@virtual
async def test_reasons(error: RpcError, said: str | None, caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    log.failed(2, PEER, error)
    if said is None:
        assert caplog.records == []
        return
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("node 2 at c2.example:9093: ")
    assert said in record.getMessage()
    assert "stele doctor --config" in record.getMessage()


@virtual
async def test_a_reason_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    log = RefusalLog()
    for _ in range(5):
        log.failed(2, PEER, DENIED)
    log.failed(3, PEER, DENIED)
    assert len(caplog.records) == 2
    await asyncio.sleep(AGAIN_S)
    log.failed(2, PEER, DENIED)
    assert len(caplog.records) == 3
    log.answered(2)
    log.failed(2, PEER, DENIED)
    assert len(caplog.records) == 4
    log.failed(2, None, DENIED)
    assert len(caplog.records) == 4


@virtual
async def test_a_peer_that_closes_every_connection(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for _ in range(CLOSED_MAX - 1):
        log.failed(2, PEER, CLOSED)
    log.failed(2, PEER, RpcError(RpcCode.UNAVAILABLE, "Connection refused"))
    for _ in range(CLOSED_MAX - 1):
        log.failed(2, PEER, CLOSED)
    log.answered(2)
    for _ in range(CLOSED_MAX - 1):
        log.failed(2, PEER, CLOSED)
    assert caplog.records == []
    log.failed(2, PEER, CLOSED)
    assert "it closes each connection of this node at once" in caplog.text
