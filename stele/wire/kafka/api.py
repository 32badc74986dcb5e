"""An API of the protocol with its versions, and the base class of all message structs."""

from __future__ import annotations

import struct
import sys
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from stele.errors import SteleError
from stele.wire.kafka import definitions, schema
from stele.wire.kafka.api_key import ApiKey
from stele.wire.kafka.decoder import Decoder, SlicedDecoder, compile_decoder
from stele.wire.kafka.encoder import Encoder, SlicedEncoder, compile_encoder
from stele.wire.kafka.primitives import (
    REQUEST_ELEMENTS_MAX,
    ZERO_UUID,
    MalformedMessageError,
    UnencodableMessageError,
)
from stele.world import Buffer

__all__ = ["ZERO_UUID", "Api", "ApiKey", "Records", "Struct"]

Records = Buffer | list[Buffer] | None
"""Record batches. Decoding gives a ``memoryview`` of the frame; encoding also takes a list of
buffers."""


NEVER_FLEXIBLE: Final = 1 << 15
"""Above every version."""


class Struct:
    """A message or a part of one. It is slotted and mutable, and equal to another if all fields
    are."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


Request = TypeVar("Request", bound=Struct)
Response = TypeVar("Response", bound=Struct)


_UNDECODABLE = (struct.error, IndexError, UnicodeDecodeError)
_UNENCODABLE = (struct.error, TypeError, AttributeError)


def _malformed(
    root: type[Struct], version: int, end: int, error: Exception
) -> MalformedMessageError:
    what = str(error) if isinstance(error, UnicodeDecodeError) else f"it ends after {end} bytes"
    return MalformedMessageError(f"{root.__name__} v{version}: {what}")


class Api(Generic[Request, Response]):
    """One API: its key, the versions that this codec supports, and its codecs, compiled when first
    used.

    ``produce.API`` is an ``Api[ProduceRequest, ProduceResponse]``, and so on.
    """

    def __init__(
        self,
        key: ApiKey,
        request: type[Request],
        response: type[Response],
        structs: Sequence[type[Struct]],
        *,
        min_version: int,
        max_version: int,
        flexible_from: int | None,
    ) -> None:
        self.key: Final = key
        self.request: Final = request
        self.response: Final = response
        self.min_version: Final = min_version
        self.max_version: Final = max_version
        self.flexible_from: Final = NEVER_FLEXIBLE if flexible_from is None else flexible_from
        self.structs: dict[str, type] = {each.__name__: each for each in structs}
        self.structs |= {request.__name__: request, response.__name__: response}
        self._schema: schema.ApiSchema | None = None
        self._decoders: dict[tuple[type[Struct], int], Decoder] = {}
        self._encoders: dict[tuple[type[Struct], int], Encoder] = {}
        # By version, for servers: they decode large requests and encode large responses in slices.
        self._sliced_decoders: dict[int, SlicedDecoder] = {}  # by version
        self._sliced_encoders: dict[int, SlicedEncoder] = {}

    def __repr__(self) -> str:
        return f"<Api {self.key.name} {self.min_version}-{self.max_version}>"

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_from

    def decode_request(
        self,
        version: int,
        buffer: Buffer,
        position: int = 0,
        elements_max: int = REQUEST_ELEMENTS_MAX,
    ) -> Request:
        """The request whose body begins at ``position``. Raises MalformedMessageError, in
        particular TooManyElementsError if its arrays have more than ``elements_max`` elements
        together.

        Bytes after the message are ignored. Records are views of ``buffer``.
        """
        message: Request = self._decode(self.request, version, buffer, position, elements_max)
        return message

    def decode_request_in_slices(
        self, version: int, buffer: Buffer, position: int = 0
    ) -> Generator[None, None, Request]:
        """As ``decode_request``, but yields after every SLICE_ELEMENTS elements of all arrays."""
        decode = self._sliced_decoders.get(version)
        if decode is None:
            fields = self._fields(self.request, version)
            flexible = self.is_flexible(version)
            decode = self._sliced_decoders[version] = compile_decoder(
                self.request.__name__, fields, version, flexible, self.structs, in_slices=True
            )
        end = len(buffer)
        try:
            message, position = yield from decode(
                buffer, memoryview(buffer), position, end, REQUEST_ELEMENTS_MAX
            )
            if position > end:
                raise IndexError
        except _UNDECODABLE as error:
            raise _malformed(self.request, version, end, error) from None
        request: Request = message
        return request

    def decode_response(self, version: int, buffer: Buffer, position: int = 0) -> Response:
        """The response whose body begins at ``position``. As ``decode_request``, but without a
        limit of elements: the request decides how large a response is."""
        message: Response = self._decode(self.response, version, buffer, position, sys.maxsize)
        return message

    def encode_request(self, version: int, message: Request) -> list[Buffer]:
        """The request's body. Raises UnencodableMessageError."""
        return self._encode(self.request, version, message)

    def encode_response(
        self, version: int, message: Response, elements_max: int = sys.maxsize
    ) -> list[Buffer]:
        """The response's body. Raises UnencodableMessageError, and TooManyElementsError if its
        arrays have more than ``elements_max`` elements together, not counting arrays of numbers."""
        return self._encode(self.response, version, message, elements_max)

    def encode_response_in_slices(
        self, version: int, message: Response
    ) -> Generator[None, None, list[Buffer]]:
        """As ``encode_response``, but yields after every SLICE_ELEMENTS elements of all arrays."""
        encode = self._sliced_encoders.get(version)
        if encode is None:
            fields = self._fields(self.response, version)
            encode = self._sliced_encoders[version] = compile_encoder(
                self.response.__name__, fields, version, self.is_flexible(version), in_slices=True
            )
        out: list[Buffer] = []
        try:
            yield from encode(message, out)
        except _UNENCODABLE as error:
            name = self.response.__name__
            raise UnencodableMessageError(f"{name} v{version}: {error}") from error
        return out

    def _decode(
        self, root: type[Struct], version: int, buffer: Buffer, position: int, elements_max: int
    ) -> Any:
        decode = self._decoders.get((root, version)) or self._compile_decoder(root, version)
        end = len(buffer)
        try:
            message, position = decode(buffer, memoryview(buffer), position, end, elements_max)
            if position > end:
                raise IndexError
        except _UNDECODABLE as error:
            raise _malformed(root, version, end, error) from None
        return message

    def _encode(
        self,
        root: type[Struct],
        version: int,
        message: Struct,
        elements_max: int = sys.maxsize,
    ) -> list[Buffer]:
        encode = self._encoders.get((root, version)) or self._compile_encoder(root, version)
        out: list[Buffer] = []
        try:
            encode(message, out, elements_max)
        except _UNENCODABLE as error:
            raise UnencodableMessageError(f"{root.__name__} v{version}: {error}") from error
        return out

    def _compile_decoder(self, root: type[Struct], version: int) -> Decoder:
        fields = self._fields(root, version)
        decoder: Decoder = compile_decoder(
            root.__name__, fields, version, self.is_flexible(version), self.structs
        )
        self._decoders[root, version] = decoder
        return decoder

    def _compile_encoder(self, root: type[Struct], version: int) -> Encoder:
        fields = self._fields(root, version)
        encoder: Encoder = compile_encoder(
            root.__name__, fields, version, self.is_flexible(version)
        )
        self._encoders[root, version] = encoder
        return encoder

    def _fields(self, root: type[Struct], version: int) -> list[schema.Field]:
        if not self.supports(version):
            raise SteleError(f"{self!r} has no version {version}")
        if self._schema is None:
            self._schema = definitions.find(self.key)
        return self._schema.request if root is self.request else self._schema.response
