"""A program of FastStream: a handler that answers each message in another topic."""

import asyncio
import itertools
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

servers, count = sys.argv[1], int(sys.argv[2])
broker = KafkaBroker(servers)
application = FastStream(broker)
handled = itertools.count(1)


@broker.subscriber("faststream-in", group_id="faststream", auto_offset_reset="earliest")
@broker.publisher("faststream-out")
async def handle(message: int) -> str:
    if next(handled) == count:
        application.exit()
    return f"handled {message}"


asyncio.run(application.run())
