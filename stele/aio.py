"""The clients for asyncio. Each is loaded when it is first used, as in ``stele.sync``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stele.lazy_names import lazy_names

if TYPE_CHECKING:
    from stele.admin.admin import Admin as Admin
    from stele.consumer.consumer import Consumer as Consumer
    from stele.producer.producer import Producer as Producer
    from stele.share_consumer.consumer import ShareConsumer as ShareConsumer
    from stele.topic_view.view import TopicView as TopicView

_HOMES = {
    "Admin": "stele.admin.admin",
    "Consumer": "stele.consumer.consumer",
    "Producer": "stele.producer.producer",
    "ShareConsumer": "stele.share_consumer.consumer",
    "TopicView": "stele.topic_view.view",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list of names

__getattr__ = lazy_names(__name__, _HOMES)
