"""Frames: a header and a message, in both directions. A frame is what follows the four size bytes.

Headers (KIP-482, KIP-511): requests have header version 1, and version 2, which adds tagged fields,
from the API's first flexible version on. The client id has a two-byte length in both. Responses
have header version 0, flexible ones version 1. ApiVersions responses always have version 0, because
their reader does not know the broker's versions yet.
"""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.api import Api, ApiKey, Struct
from stele.wire.kafka.primitives import (
    REQUEST_ELEMENTS_MAX,
    SLICE_ELEMENTS,
    MalformedMessageError,
    read_uvarint,
)
from stele.world import Buffer

SIZE_BYTES: Final = 4
"""The bytes of the size before every frame."""

PLAIN_REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest request without records. All the elements that a request may have fit into it."""

DECODED_PER_BYTE_MAX: Final = 64
"""The most bytes of memory that one byte of a request without records needs once it is decoded. The
worst case is a topic without a name: two bytes, and a slotted object."""

DECODED_PER_ELEMENT_MAX: Final = 384
"""The most bytes of memory that an element of an array needs, besides its own bytes."""

KEYS_WITH_RECORDS: Final = frozenset({ApiKey.PRODUCE})
"""The APIs whose requests have records."""

_REQUEST_HEADER = struct.Struct(">hhih")
_PREFIX_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION = struct.Struct(">i")
_PREFIX_AND_REQUEST_HEADER = struct.Struct(">ihhih")

Request = TypeVar("Request", bound=Struct)
Response = TypeVar("Response", bound=Struct)


class RequestHeader(NamedTuple):
    api_key: int  # an ApiKey after decode_request has returned it
    api_version: int
    correlation_id: int
    client_id: str | None


class UnsupportedRequestError(ApiError):
    """An API key or version that is not supported here. ``header.client_id`` is not set."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_VERSION,
            f"API key {header.api_key} version {header.api_version}",
        )
        self.header = header


_apis: dict[int, Api[Any, Any]] = {}


def api_of(key: int) -> Api[Any, Any]:
    """The API of a key. Its module is loaded when it is first needed. Raises KeyError if
    unknown."""
    api = _apis.get(key) or _find_api(key)
    if api is None:
        raise KeyError(key)
    return api


def _find_api(key: int) -> Api[Any, Any] | None:
    try:
        name = ApiKey(key).name.lower()
    except ValueError:
        return None
    module = importlib.import_module(f"stele.wire.kafka.messages.{name}")
    api: Api[Any, Any] = module.API
    _apis[key] = api
    return api


def decode_request(frame: Buffer) -> tuple[RequestHeader, Struct]:
    """Header and message of a request. Its records are views of ``frame``.

    Pass a ``bytearray`` if records will be stamped: then their views are writable. Raises
    UnsupportedRequestError, and MalformedMessageError for any other fault.
    """
    header, position, api = read_request_header(frame)
    return header, api.decode_request(header.api_version, frame, position)


def largest_request_bytes(api_key: int, max_bytes: int) -> int:
    """The largest frame of an API's requests. ``max_bytes`` is the limit for all APIs."""
    return max_bytes if api_key in KEYS_WITH_RECORDS else min(max_bytes, PLAIN_REQUEST_BYTES_MAX)


def memory_of_request(api_key: int, size_bytes: int) -> int:
    """The most bytes of memory that a request of this size needs once it is decoded. Records stay
    in its frame. ``memory_of_elements`` comes on top for a request with records that has many
    elements."""
    if api_key in KEYS_WITH_RECORDS:
        return size_bytes
    return 2 * size_bytes + memory_of_elements(size_bytes)


def memory_of_elements(size_bytes: int) -> int:
    """The most bytes of memory that the elements of a request of this size need."""
    most = DECODED_PER_ELEMENT_MAX * REQUEST_ELEMENTS_MAX
    return min(DECODED_PER_BYTE_MAX * size_bytes, most)


def client_id_within(beginning: Buffer) -> str:
    """The client id, or its beginning, in the first bytes of a request. Empty if they have none.
    Nothing is checked."""
    if len(beginning) < _REQUEST_HEADER.size:
        return ""
    size = _REQUEST_HEADER.unpack_from(beginning, 0)[3]
    position = _REQUEST_HEADER.size
    return str(beginning[position : position + max(size, 0)], "utf-8", "replace")


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int, Api[Any, Any]]:
    """The header of a request, the position of its message, and the API that decodes it.

    Raises UnsupportedRequestError, and MalformedMessageError for any other fault.
    """
    client_id = None
    position = _REQUEST_HEADER.size
    try:
        key, version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame, 0)
        api = _apis.get(key) or _find_api(key)
        if api is None or not api.supports(version):
            raise UnsupportedRequestError(RequestHeader(key, version, correlation_id, None))
        if size >= 0:
            client_id = str(frame[position : position + size], "utf-8")
            position += size
        if version >= api.flexible_from:
            if frame[position]:
                position = _skip_tagged_fields(frame, position)
            else:
                position += 1
    except (struct.error, IndexError):
        raise MalformedMessageError(f"a request of {len(frame)} bytes") from None
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"a client id that is not UTF-8: {error}") from None
    if position > len(frame):
        raise MalformedMessageError(f"a request of {len(frame)} bytes")
    return RequestHeader(key, version, correlation_id, client_id), position, api


def _skip_tagged_fields(frame: Buffer, position: int) -> int:
    """Skip the tagged fields of a header. They are skipped in one go, so there may not be more than
    one slice of them; nobody sends any today."""
    count, position = read_uvarint(frame, position)
    if count > SLICE_ELEMENTS:
        raise MalformedMessageError(f"a header with {count} tagged fields")
    for _ in range(count):
        _tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position


def encode_request(
    api: Api[Request, Any],
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: Request,
) -> list[Buffer]:
    """A whole request including the four size bytes, as buffers to be written in order."""
    buffers = api.encode_request(version, message)
    name = b"" if client_id is None else client_id.encode()
    tail = name + b"\x00" if version >= api.flexible_from else name
    size = _REQUEST_HEADER.size + len(tail) + sum(map(len, buffers))
    header = _PREFIX_AND_REQUEST_HEADER.pack(
        size, api.key, version, correlation_id, -1 if client_id is None else len(name)
    )
    buffers[0] = b"".join((header, tail, buffers[0]))
    return buffers


def encode_response(
    api_key: int,
    version: int,
    correlation_id: int,
    message: Struct,
    elements_max: int = sys.maxsize,
) -> list[Buffer]:
    """A whole response including the four size bytes, as buffers to be written in order. Raises as
    ``Api.encode_response``."""
    api = api_of(api_key)
    buffers = api.encode_response(version, message, elements_max)
    return _framed(api, version, correlation_id, buffers)


def encode_response_in_slices(
    api_key: int, version: int, correlation_id: int, message: Struct
) -> Generator[None, None, list[Buffer]]:
    """As ``encode_response``, but yields now and then. Returns the buffers."""
    api = api_of(api_key)
    buffers = yield from api.encode_response_in_slices(version, message)
    return _framed(api, version, correlation_id, buffers)


def _framed(
    api: Api[Any, Any], version: int, correlation_id: int, buffers: list[Buffer]
) -> list[Buffer]:
    is_flexible = version >= api.flexible_from and api.key is not ApiKey.API_VERSIONS
    tail = b"\x00" if is_flexible else b""
    size = _CORRELATION.size + len(tail) + sum(map(len, buffers))
    header = _PREFIX_AND_CORRELATION.pack(size, correlation_id)
    buffers[0] = b"".join((header, tail, buffers[0]))
    return buffers


def read_correlation_id(frame: Buffer) -> int:
    """The correlation id in a response's frame. Raises MalformedMessageError."""
    if len(frame) < _CORRELATION.size:
        raise MalformedMessageError(f"a response of {len(frame)} bytes")
    correlation_id: int = _CORRELATION.unpack_from(frame, 0)[0]
    return correlation_id


def decode_response(api: Api[Any, Response], version: int, frame: Buffer) -> Response:
    """The message in a response's frame. Raises MalformedMessageError.

    A broker that does not know the version of an ApiVersions request answers in version 0 with
    UNSUPPORTED_VERSION (KIP-511). The result is then a message with this error code.
    """
    position = _CORRELATION.size
    if api.key is ApiKey.API_VERSIONS:
        if bytes(frame[position : position + 2]) == _UNSUPPORTED_VERSION:
            version = 0
    elif version >= api.flexible_from:
        try:
            position = _skip_tagged_fields(frame, position)
        except IndexError:
            raise MalformedMessageError(f"a response of {len(frame)} bytes") from None
    return api.decode_response(version, frame, position)


_UNSUPPORTED_VERSION = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
