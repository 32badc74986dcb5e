"""Requests with any number of elements, for every array of every API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, schema


def api_named(name: str) -> tuple[wire.Api[Any, Any], schema.ApiSchema]:
    found = next(api for api in definitions.all_apis() if api.name == name)
    return wire.api_of(found.key), found


def smallest(api: wire.Api[Any, Any], cls: Any, fields: list[schema.Field], version: int) -> Any:
    """A struct whose values take the fewest bytes."""
    values: dict[str, Any] = {}
    for each in fields:
        if version in each.versions and each.is_struct and not each.is_array and each.tag is None:
            struct_class = api.structs[each.type]
            values[each.name] = smallest(api, struct_class, each.fields, version)
        elif version in each.versions and each.is_nullable(version) and each.tag is None:
            values[each.name] = None
        elif version in each.versions and each.type == "string" and not each.is_array:
            values[each.name] = ""
    return cls(**values)


def array_paths(
    fields: list[schema.Field], version: int
) -> Iterator[tuple[list[schema.Field], schema.Field]]:
    """Every array of a request, with the arrays that contain it."""
    for each in fields:
        if not each.is_array or version not in each.versions or each.tag is not None:
            continue
        yield [], each
        for path, nested in array_paths(each.fields, version):
            yield [each, *path], nested


def with_array(
    api: wire.Api[Any, Any],
    message: Any,
    path: list[schema.Field],
    each: schema.Field,
    count: int,
    version: int,
) -> Any:
    """``message`` with ``count`` elements of the smallest size in one of its arrays."""
    elements = [element_of(api, each, version)] * count
    return with_elements(api, message, path, each, elements, version)


def with_elements(
    api: wire.Api[Any, Any],
    message: Any,
    path: list[schema.Field],
    each: schema.Field,
    elements: list[Any],
    version: int,
) -> Any:
    for step in path:
        inner = smallest(api, api.structs[step.type], step.fields, version)
        setattr(message, step.name, [inner])
        message = inner
    setattr(message, each.name, elements)
    return message


def element_of(api: wire.Api[Any, Any], each: schema.Field, version: int) -> Any:
    if each.is_struct:
        return smallest(api, api.structs[each.type], each.fields, version)
    return {"uuid": bytes(16), "string": ""}.get(each.type, 0)


def numbered(element: Any, number: int) -> Any:
    """The element with its own name and partition, if it has such fields."""
    if isinstance(element, str):
        return f"n {number}"
    if isinstance(element, bytes):
        return number.to_bytes(16, "big")
    if isinstance(element, int):
        return number
    for name in element.__slots__:
        if name in _NAMES and getattr(element, name) is not None:
            setattr(element, name, f"n {number}")
        elif name in _NUMBERS:
            setattr(element, name, number)
    return element


_NAMES = ("name", "topic", "group_id", "resource_name", "feature")
_NUMBERS = ("partition", "partition_index", "index")


def distinct_requests(
    name: str, version: int, count: int
) -> Iterator[tuple[str, wire.Api[Any, Any], Any]]:
    """As ``dense_requests``, but no two elements are equal. Yields the messages themselves."""
    api, definition = api_named(name)
    for path, each in array_paths(definition.request, version):
        message = smallest(api, api.request, definition.request, version)
        elements = [numbered(element_of(api, each, version), number) for number in range(count)]
        with_elements(api, message, path, each, elements, version)
        yield each.name, api, message


def dense_requests(name: str, version: int, count: int) -> Iterator[tuple[str, bytes]]:
    api, definition = api_named(name)
    for path, each in array_paths(definition.request, version):
        message = smallest(api, api.request, definition.request, version)
        with_array(api, message, path, each, count, version)
        yield each.name, b"".join(api.encode_request(version, message))
