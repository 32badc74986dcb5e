"""The asyncio face of the clients."""

from stele.admin import Admin
from stele.consumer import Consumer
from stele.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
