"""The synchronous clients: the asyncio clients on one background thread.

All clients of a process share one event loop in one daemon thread. Methods may be called from any
thread, those of a consumer from one thread at a time.
"""

from stele.sync.admin import Admin
from stele.sync.consumer import Consumer
from stele.sync.delivery import Delivery
from stele.sync.producer import Producer
from stele.sync.topic_view import TopicView

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "TopicView"]
