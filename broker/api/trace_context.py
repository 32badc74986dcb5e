"""The client's trace context, in a header of a Produce request's first record.

A client that traces puts a header into each record that it sends, as OpenTelemetry's packages for
Kafka's clients do. One request may hold records of several traces. Its span becomes a part of the
first one.
"""

from __future__ import annotations

from stele.errors import ApiError
from stele.wire.batch import HEADER_SIZE, read_header
from stele.wire.compression import Compression
from stele.wire.kafka.messages.produce import ProduceRequest
from stele.wire.record import first_header


def context_of(request: ProduceRequest, header: str) -> str:
    """The value of the header; empty if the first record has none, is compressed or is unsound.

    The batch is not checked yet. Its checks tell the client what is wrong with it.
    """
    for topic in request.topic_data:
        for partition in topic.partition_data:
            return _value(partition.records, header)
    return ""


def _value(batch: object, header: str) -> str:
    if not isinstance(batch, memoryview | bytearray):
        return ""
    try:
        if read_header(batch).compression is not Compression.NONE:
            return ""
        value = first_header(memoryview(batch)[HEADER_SIZE:], header.encode())
    except ApiError:
        return ""
    return "" if value is None else value.decode("latin-1")
