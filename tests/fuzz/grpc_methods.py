"""The methods of gRPC, and random requests of each."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from stele.wire.v1 import (
    admin_pb2,
    controller_pb2,
    groups_pb2,
    log_pb2,
    raft_pb2,
    transactions_pb2,
)
from tests.fuzz.bytes import mutated
from tests.fuzz.messages import fill

_FOR_CLIENTS: Final[tuple[FileDescriptor, ...]] = (
    admin_pb2.DESCRIPTOR,
    groups_pb2.DESCRIPTOR,
    log_pb2.DESCRIPTOR,
    transactions_pb2.DESCRIPTOR,
)
_FOR_NODES: Final[tuple[FileDescriptor, ...]] = (controller_pb2.DESCRIPTOR, raft_pb2.DESCRIPTOR)


def _methods(files: Collection[FileDescriptor], *, are_streams: bool) -> dict[str, type[Message]]:
    """The request of each method, by the method's path."""
    return {
        f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
        if method.client_streaming is are_streams
    }


METHODS: Final = _methods(_FOR_CLIENTS, are_streams=False)
STREAMS: Final = _methods(_FOR_CLIENTS, are_streams=True)
NODES_METHODS: Final = _methods(_FOR_NODES, are_streams=False)
NODES_STREAMS: Final = _methods(_FOR_NODES, are_streams=True)


class Payloads:
    """Some requests of each method. ``fixed``: fields that usually have this value."""

    def __init__(
        self,
        rng: random.Random,
        methods: dict[str, type[Message]],
        fixed: dict[str, Any] | None = None,
    ) -> None:
        self._of = {
            path: [_request(rng, request, fixed or {}) for _ in range(12)]
            for path, request in sorted(methods.items())
        }
        self.paths = list(self._of)

    def draw(self, rng: random.Random, path: str) -> bytes:
        payloads = self._of[path]
        payload = rng.choice(payloads)
        return bytes(mutated(rng, payload, payloads)) if rng.random() < 0.6 else payload


def _request(rng: random.Random, cls: type[Message], fixed: dict[str, Any]) -> bytes:
    message = fill(rng, cls())
    for name, value in fixed.items():
        if name in cls.DESCRIPTOR.fields_by_name and rng.random() < 0.8:
            setattr(message, name, value)
    return message.SerializeToString()
