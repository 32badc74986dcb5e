"""Tests of network and connections run on uvloop, as nodes do, and on asyncio's loop, as clients
may."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_ON_BOTH_LOOPS = ("test_network.py", "test_kafka_connection.py", "test_connection_over_tcp.py")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name in _ON_BOTH_LOOPS:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
