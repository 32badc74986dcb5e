"""The clients for asyncio."""

from stele.admin.admin import Admin
from stele.consumer.consumer import Consumer
from stele.producer.producer import Producer
from stele.topic_view.view import TopicView

__all__ = ["Admin", "Consumer", "Producer", "TopicView"]
