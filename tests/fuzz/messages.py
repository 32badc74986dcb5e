"""Random requests of every API and version, drawn quickly."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, schema
from tests.support.batches import make_batch

NAMES = ("t", "g", "", "a", "__consumer_offsets", "x" * 130, "ü")
NUMBERS = (-2, -1, 0, 0, 1, 2, 3, 1000, 2**31 - 1)
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint16": 16, "uint32": 32}
_DEEPEST = 4


def request_of(rng: random.Random, api: wire.Api[Any, Any], version: int) -> Any:
    """A request that can be encoded: fields of other versions have their defaults."""
    return _struct(rng, api, api.request, definitions.find(api.key).request, version)


def _struct(
    rng: random.Random, api: wire.Api[Any, Any], cls: type, fields: list[schema.Field], version: int
) -> Any:
    return cls(
        **{
            each.name: _value(rng, api, each, version)
            for each in fields
            if version in each.versions
        }
    )


def _value(rng: random.Random, api: wire.Api[Any, Any], each: schema.Field, version: int) -> Any:
    if each.is_nullable(version) and rng.random() < 0.2:
        return None
    if each.is_array:
        return [_one(rng, api, each, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _one(rng, api, each, version)


def _one(rng: random.Random, api: wire.Api[Any, Any], each: schema.Field, version: int) -> Any:
    if each.is_struct:
        return _struct(rng, api, api.structs[each.type], each.fields, version)
    if each.type == "string":
        return rng.choice(NAMES)
    if each.type in ("bytes", "records"):
        return bytes(make_batch()) if rng.random() < 0.5 else rng.randbytes(rng.randrange(60))
    if each.type == "bool":
        return rng.random() < 0.5
    if each.type == "uuid":
        return wire.ZERO_UUID if rng.random() < 0.3 else rng.randbytes(16)
    if each.type == "float64":
        return rng.choice((0.0, -1.5, float("inf"), float("nan")))
    if each.type in _UNSIGNED:
        return min(abs(rng.choice(NUMBERS)), (1 << _UNSIGNED[each.type]) - 1)
    most = (1 << _INTEGERS[each.type] - 1) - 1
    return min(max(rng.choice(NUMBERS), -most - 1), most)


def fill(rng: random.Random, message: Message, depth: int = 0) -> Message:
    """Set fields of a protobuf message at random."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4:
            continue
        if field.is_repeated:
            for _ in range(rng.choice((0, 1, 2, 3))):
                _add(rng, message, field, depth)
        elif field.message_type is not None:
            if depth < _DEEPEST:
                nested = getattr(message, field.name)
                nested.SetInParent()
                fill(rng, nested, depth + 1)
        else:
            setattr(message, field.name, _scalar(rng, field))
    return message


def _add(rng: random.Random, message: Message, field: Any, depth: int) -> None:
    values = getattr(message, field.name)
    if field.message_type is None:
        values.append(_scalar(rng, field))
    elif field.message_type.GetOptions().map_entry:
        return  # empty maps are enough
    elif depth < _DEEPEST:
        fill(rng, values.add(), depth + 1)


def _scalar(rng: random.Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.choice((b"", b"i" * 16, bytes(make_batch()), rng.randbytes(20)))
        return rng.choice(NAMES)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice((0.0, -1.5, float("inf")))
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 100))  # 100: of a later version
    number = rng.choice(NUMBERS)
    unsigned = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    return abs(number) if kind in unsigned else number
