"""The synchronous clients: the asyncio clients on one background thread.

All clients of a process share one event loop in one daemon thread. Methods may be called from any
thread, those of a consumer from one thread at a time. Each client is loaded when it is first used:
a producer or a consumer needs neither protobuf nor gRPC, which an Admin loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stele.lazy_names import lazy_names

if TYPE_CHECKING:
    from stele.sync.admin import Admin as Admin
    from stele.sync.consumer import Consumer as Consumer
    from stele.sync.delivery import Delivery as Delivery
    from stele.sync.producer import Producer as Producer
    from stele.sync.share_consumer import ShareConsumer as ShareConsumer
    from stele.sync.topic_view import TopicView as TopicView

_HOMES = {
    "Admin": "stele.sync.admin",
    "Consumer": "stele.sync.consumer",
    "Delivery": "stele.sync.delivery",
    "Producer": "stele.sync.producer",
    "ShareConsumer": "stele.sync.share_consumer",
    "TopicView": "stele.sync.topic_view",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list of names

__getattr__ = lazy_names(__name__, _HOMES)
