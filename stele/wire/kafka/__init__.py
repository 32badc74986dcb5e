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

One class represents a struct in all versions. A field that a version lacks has its default after
decoding and is left out when encoding. Topic ids are 16 bytes. Error codes are plain ints, and
``ErrorCode`` values may be given. An absent tagged struct is None. ``records`` are decoded as a
``memoryview`` of the frame, and may be encoded from any buffer or a list of buffers. They are not
copied.

To add an API: write its schema into a text under ``definitions/`` (``schema.py`` has the grammar),
and run ``scripts/generate-kafka``. The test of that package then compares the new messages with two
other codecs.
"""

from stele.wire.kafka.api import Api, ApiKey, Records, Struct
from stele.wire.kafka.codec import (
    KEYS_WITH_RECORDS,
    SIZE_BYTES,
    RequestHeader,
    UnsupportedRequestError,
    api_of,
    client_id_within,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_slices,
    largest_request_bytes,
    memory_of_elements,
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
    "KEYS_WITH_RECORDS",
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
    "client_id_within",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_in_slices",
    "largest_request_bytes",
    "memory_of_elements",
    "memory_of_request",
    "read_correlation_id",
    "read_request_header",
]
