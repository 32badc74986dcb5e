"""Random messages of every API and version, and the same messages for two other codecs."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import sys
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kio.schema.errors import ErrorCode as KioErrorCode

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, schema

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint16": 16, "uint32": 32}
_ERROR_CODES = sorted(code.value for code in KioErrorCode)
_MAX_TIME_MS = 4_000_000_000_000
_TIMEDELTAS = ("session_lifetime_ms", "max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms")
"""The fields of which kio makes a timedelta."""
_DATETIMES = (
    "transaction_start_time_ms",
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
)
"""The fields of which kio makes a time, and takes no -1."""

for _group in ("admin", "consumer", "metadata", "producer"):
    importlib.import_module(f"kafka.protocol.{_group}")  # the module defines its message classes


def kinds() -> Iterator[tuple[str, int, str]]:
    """All combinations of API, version, and request or response."""
    for api in definitions.all_apis():
        for version in range(api.versions.first, api.versions.last + 1):
            yield api.name, version, "request"
            yield api.name, version, "response"


def api_named(name: str) -> wire.Api[Any, Any]:
    return next(wire.api_of(api.key) for api in definitions.all_apis() if api.name == name)


def fields_of(api: wire.Api[Any, Any], kind: str) -> list[schema.Field]:
    definition = definitions.find(api.key)
    return definition.request if kind == "request" else definition.response


# --------------------------------------------------------------------------------- random


def messages(api: wire.Api[Any, Any], version: int, kind: str) -> st.SearchStrategy[Any]:
    """Messages with random values in Kafka's fields of the version, and defaults elsewhere."""
    root = api.request if kind == "request" else api.response
    return _structs(api, root, fields_of(api, kind), version)


def _structs(
    api: wire.Api[Any, Any], cls: type, fields: list[schema.Field], version: int
) -> st.SearchStrategy[Any]:
    members = {
        each.name: _values(api, each, version)
        for each in fields
        if version in each.versions and not each.is_ours
    }
    return st.builds(cls, **members)


def _values(api: wire.Api[Any, Any], each: schema.Field, version: int) -> st.SearchStrategy[Any]:
    if each.is_struct:
        cls = getattr(sys.modules[api.request.__module__], each.type)
        one = _structs(api, cls, each.fields, version)
        if not each.is_array and each.tag is not None:  # absent if it has the default's values
            default = cls()
            one = one.map(lambda value: None if value == default else value)
    else:
        one = _scalars(each)
    values = st.lists(one, max_size=2) if each.is_array else one
    return st.none() | values if each.is_nullable(version) else values


def _scalars(each: schema.Field) -> st.SearchStrategy[Any]:
    if each.name.endswith("error_code"):
        return st.sampled_from(_ERROR_CODES)
    if each.name in _DATETIMES:
        return st.integers(0, _MAX_TIME_MS)
    if each.name in _TIMEDELTAS:
        return st.integers(-_MAX_TIME_MS, _MAX_TIME_MS)
    if each.name in ("log_append_time_ms", "retention_time_ms"):
        return st.just(-1) | st.integers(0, _MAX_TIME_MS)
    if each.type in _INTEGERS:
        bits = _INTEGERS[each.type]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    if each.type in _UNSIGNED:
        return st.integers(0, (1 << _UNSIGNED[each.type]) - 1)
    if each.type == "bool":
        return st.booleans()
    if each.type == "uuid":
        return st.just(wire.ZERO_UUID) | st.binary(min_size=16, max_size=16)
    if each.type == "float64":
        return st.floats(allow_nan=False)
    if each.type in ("bytes", "records"):
        return st.binary(max_size=200)
    assert each.type == "string"
    return st.text(max_size=8) | st.just("x" * 130)  # its compact length has two bytes


# ------------------------------------------------------------------------------------ kio


def kio_class(api: str, version: int, kind: str) -> type:
    name = definitions.find(api_named(api).key).module
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    cls: type = getattr(module, api + kind.capitalize())
    return cls


def to_kio(cls: Any, message: wire.Struct) -> Any:
    hints = typing.get_type_hints(cls)
    values = {}
    for each in dataclasses.fields(cls):
        kafka_type = each.metadata.get("kafka_type", "")
        timed = kafka_type.startswith(("timedelta", "datetime"))
        value = getattr(message, each.name + "_ms" if timed else each.name)
        values[each.name] = _kio_value(kafka_type, hints[each.name], value)
    return cls(**values)


def _kio_value(kafka_type: str, hint: Any, value: Any) -> Any:
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return None if value == -1 else epoch + datetime.timedelta(milliseconds=value)
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type == "uuid":
        return None if value == wire.ZERO_UUID else uuid.UUID(bytes=value)
    if isinstance(value, list):
        element = _element(hint)
        return tuple(to_kio(element, each) if _is_struct(each) else each for each in value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint() if value is None else to_kio(hint, value)
    if _is_struct(value):  # the struct is nullable
        return to_kio(next(each for each in typing.get_args(hint) if each is not None), value)
    return value


def _is_struct(value: object) -> bool:
    return isinstance(value, wire.Struct)


def _element(hint: Any) -> Any:
    """The T of ``tuple[T, ...]`` or of ``tuple[T, ...] | None``."""
    if typing.get_origin(hint) is not tuple:
        hint = next(each for each in typing.get_args(hint) if typing.get_origin(each) is tuple)
    return typing.get_args(hint)[0]


# --------------------------------------------------------------------------- kafka-python


def kafka_python_class(api: str, kind: str) -> Any:
    return _by_name(ApiMessage)[api + kind.capitalize()]


def kafka_python_has(api: str) -> bool:
    return api + "Request" in _by_name(ApiMessage)


def _field_names(cls: Any) -> set[str]:
    return {each.name for each in cls._struct._fields}


def _by_name(base: type) -> dict[str, type]:
    found: dict[str, type] = {}
    cls: type
    for cls in base.__subclasses__():
        found |= {cls.__name__: cls} | _by_name(cls)
    return found


# Kafka uses these names for different structs in request and response. Our names differ.
_KAFKA_PYTHON_NAMES = {
    ("AlterClientQuotasResponse", "AlteredQuota"): "EntryData",
    ("DescribeQuorumRequest", "TopicRequest"): "TopicData",
    ("TopicData", "PartitionRequest"): "PartitionData",
}


def to_kafka_python(
    cls: Any, message: wire.Struct, fields: list[schema.Field], version: int
) -> Any:
    values = {}
    for each in fields:
        if version not in each.versions or each.is_ours:
            continue
        value = getattr(message, each.name)
        if each.is_struct and value is not None:
            nested = getattr(cls, _KAFKA_PYTHON_NAMES.get((cls.__name__, each.type), each.type))
            if each.is_array:
                value = [to_kafka_python(nested, v, each.fields, version) for v in value]
            else:
                value = to_kafka_python(nested, value, each.fields, version)
        name = each.name
        if name.endswith("authorized_operations") and name not in _field_names(cls):
            name = "authorized_operations"  # kafka-python's own name for it
        if name == "authorized_operations":
            # Under this name kafka-python has a set of bits.
            value = {bit for bit in range(32) if value >> bit & 1}
        if each.tag is None or not _is_default(each, value):
            values[name] = uuid.UUID(bytes=value) if each.type == "uuid" else value
    return cls(version=version, **values)


def _is_default(each: schema.Field, value: Any) -> bool:
    if each.type == "uuid":
        return bool(value == wire.ZERO_UUID)
    return value is None or value == [] or value == int(each.default or 0)


# ---------------------------------------------------------------------- nulls in answers

# Fields that are null in Kafka's own answers. Clients do not check others for null.
_KAFKA_LEAVES_NULL = {
    "error_message",
    "batch_index_error_message",
    "rack",
    "documentation",
    "group_instance_id",
    "JoinGroup.protocol_type",  # of a request that is refused
    "JoinGroup.protocol_name",
    "SyncGroup.protocol_type",
    "SyncGroup.protocol_name",
    "ConsumerGroupHeartbeat.member_id",  # of a request that is refused
    "ConsumerGroupHeartbeat.assignment",  # as in the answer before
    "ShareGroupHeartbeat.member_id",  # of a request that is refused
    "ShareGroupHeartbeat.assignment",  # as in the answer before
    "acknowledge_error_message",
    "aborted_transactions",  # for read_uncommitted
    "Metadata.topics.name",  # for an unknown id
    "Metadata.cluster_id",  # for a request that is refused as a whole
    "DeleteTopics.responses.name",  # for an unknown id
    "DescribeTopicPartitions.next_cursor",  # if nothing is left
    "DescribeConfigs.results.configs.value",  # for a password, or a key without a default
    "DescribeConfigs.results.configs.synonyms.value",
    "DescribeClientQuotas.entries",  # for a request that is refused
    "AlterClientQuotas.entries.entity.entity_name",  # the default of all names
}


def unexpected_nulls(api: wire.Api[Any, Any], version: int, answer: wire.Struct) -> list[str]:
    """The paths of fields that are null although Kafka's are never null."""
    name = type(answer).__name__.removesuffix("Response")
    found = _nulls(answer, fields_of(api, "response"), version, name)
    return [
        path
        for path in found
        if path not in _KAFKA_LEAVES_NULL and path.rsplit(".", 1)[-1] not in _KAFKA_LEAVES_NULL
    ]


def _nulls(
    message: wire.Struct, fields: list[schema.Field], version: int, path: str
) -> Iterator[str]:
    for each in fields:
        if version not in each.versions:
            continue
        value = getattr(message, each.name)
        here = f"{path}.{each.name}"
        if value is None and each.is_nullable(version):
            yield here
        elif each.is_struct and value is not None:
            for item in value if each.is_array else [value]:
                yield from _nulls(item, each.fields, version, here)
