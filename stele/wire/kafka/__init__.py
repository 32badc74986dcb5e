"""The Kafka protocol: messages of every served API and version to and from bytes.

Handlers get a message and answer with one::

    from stele.wire import kafka
    from stele.wire.kafka.messages import list_offsets

    header, request = kafka.decode_request(frame)
    assert isinstance(request, list_offsets.ListOffsetsRequest)
    response = list_offsets.ListOffsetsResponse(topics=[...])
    buffers = kafka.encode_response(
        header.api_key, header.api_version, header.correlation_id, response
    )
    transport.writelines(buffers)

One class stands for a struct in all versions: a field that a version lacks has its default when
decoded, and is left out when encoded. Topic ids are 16 bytes. Error codes are plain ints;
``ErrorCode`` values may be given. A tagged struct is None when absent. ``records`` come as
``memoryview`` of the frame and may be given as any buffer or a list of them; they are not copied.

To add an API: write its schema into a text under ``definitions/`` (the grammar is in
``schema.py``), its key into ``ApiKey``, and run ``scripts/generate-kafka``; the test of that
package compares the new messages with two other codecs by itself.
"""

from stele.wire.kafka.api import Api, ApiKey, Records, Struct
from stele.wire.kafka.codec import (
    SIZE_BYTES,
    RequestHeader,
    UnsupportedRequestError,
    api_of,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_slices,
    largest_request_bytes,
    memory_of_request,
    read_correlation_id,
    read_request_header,
)
from stele.wire.kafka.primitives import (
    SLICE_ELEMENTS,
    ZERO_UUID,
    MalformedMessageError,
    TooManyElementsError,
    UnencodableMessageError,
)

__all__ = [
    "SIZE_BYTES",
    "SLICE_ELEMENTS",
    "ZERO_UUID",
    "Api",
    "ApiKey",
    "MalformedMessageError",
    "Records",
    "RequestHeader",
    "Struct",
    "TooManyElementsError",
    "UnencodableMessageError",
    "UnsupportedRequestError",
    "api_of",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_in_slices",
    "largest_request_bytes",
    "memory_of_request",
    "read_correlation_id",
    "read_request_header",
]
