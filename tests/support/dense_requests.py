"""Requests with any number of elements, for every array of every API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, schema


def api_named(name: str) -> tuple[wire.Api[Any, Any], schema.ApiSchema]:
    found = next(api for api in definitions.all_apis() if api.name == name)
    return wire.api_of(found.key), found


def smallest(api: wire.Api[Any, Any], cls: Any, fields: list[schema.Field], version: int) -> Any:
    """A struct whose values take the fewest bytes."""
    return cls(**smallest_values(api, fields, version))


def smallest_values(
    api: wire.Api[Any, Any], fields: list[schema.Field], version: int
) -> dict[str, Any]:
    """The values of ``smallest`` that are not the defaults, by the names of their fields."""
    values: dict[str, Any] = {}
    for each in fields:
        if version in each.versions and each.is_struct and not each.is_array and each.tag is None:
            struct_class = api.structs[each.type]
            values[each.name] = smallest(api, struct_class, each.fields, version)
        elif version in each.versions and each.is_nullable(version) and each.tag is None:
            values[each.name] = None
        elif version in each.versions and each.type == "string" and not each.is_array:
            values[each.name] = ""
    return values


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


def numbered_elements(
    api: wire.Api[Any, Any], each: schema.Field, version: int, count: int
) -> list[Any]:
    """Elements of an array with names and partitions of their own, if they have such fields."""
    if not each.is_struct:
        if each.type == "int8":  # there are not so many
            return [number % 128 for number in range(count)]
        make = _NUMBERED.get(each.type, int)
        return [make(number) for number in range(count)]
    cls: Any = api.structs[each.type]
    values = smallest_values(api, each.fields, version)
    first = cls(**values)
    names = [name for name in cls.__slots__ if name in _NAMES and getattr(first, name) is not None]
    numbers = [name for name in cls.__slots__ if name in _NUMBERS]
    elements = []
    for number in range(count):
        element = cls(**values)
        for name in names:
            setattr(element, name, f"n {number}")
        for name in numbers:
            setattr(element, name, number)
        elements.append(element)
    return elements


_NAMES = ("name", "topic", "group_id", "resource_name", "feature")
_NUMBERS = ("partition", "partition_index", "index")
_NUMBERED: dict[str, Callable[[int], Any]] = {
    "uuid": lambda number: number.to_bytes(16, "big"),
    "string": lambda number: f"n {number}",
}


def distinct_requests(
    name: str, version: int, count: int, *, but: Collection[str] = ()
) -> Iterator[tuple[str, wire.Api[Any, Any], Any]]:
    """As ``dense_requests``, but no two elements are equal. Yields the messages themselves, none
    of the arrays ``but``."""
    api, definition = api_named(name)
    for path, each in array_paths(definition.request, version):
        if each.name in but:
            continue
        message = smallest(api, api.request, definition.request, version)
        elements = numbered_elements(api, each, version, count)
        with_elements(api, message, path, each, elements, version)
        yield each.name, api, message


def dense_requests(name: str, version: int, count: int) -> Iterator[tuple[str, bytes]]:
    api, definition = api_named(name)
    for path, each in array_paths(definition.request, version):
        message = smallest(api, api.request, definition.request, version)
        with_array(api, message, path, each, count, version)
        yield each.name, b"".join(api.encode_request(version, message))
