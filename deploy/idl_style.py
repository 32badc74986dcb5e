"""How ``proto/`` is written: buf's rules of names and packages, and comments for strangers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

_SNAKE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PASCAL: Final = re.compile(r"([A-Z][a-z0-9]*)+")
_CONSTANT: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")

# The numbers of fields of descriptors: a comment is found by the path of what it belongs to.
_FILE_MESSAGE, _FILE_ENUM, _FILE_SERVICE = 4, 5, 6
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM, _MESSAGE_ONEOF = 2, 3, 4, 8
_ENUM_VALUE = 2
_SERVICE_METHOD = 2

_Place = tuple[int, ...]


def faults(files: FileDescriptorSet, commented: Collection[str]) -> list[str]:
    """What is wrong, in words. In the files ``commented`` everything has a comment, and enums have
    buf's prefixes and zero values."""
    found: list[str] = []
    for file in files.file:
        found += _file_faults(file)
        style = _Style(file, is_strict=file.name in commented)
        found += style.faults()
    return found


def _file_faults(file: FileDescriptorProto) -> Iterator[str]:
    path = PurePosixPath(file.name)
    if file.syntax != "proto3":
        yield f"{file.name} is not proto3"
    if file.package != ".".join(path.parent.parts):
        yield f"{file.name}: its directory does not belong to package {file.package}"
    if not _SNAKE.fullmatch(path.stem):
        yield f"{file.name} is not lower_snake_case"
    if not file.options.go_package:
        yield f"{file.name} has no go_package"
    for service in file.service:
        for method in service.method:
            if not _PASCAL.fullmatch(method.name):
                yield f"{service.name}.{method.name} is not PascalCase"


class _Style:
    """The names and comments of one file."""

    def __init__(self, file: FileDescriptorProto, *, is_strict: bool) -> None:
        self._file = file
        self._is_strict = is_strict
        self._comments = {
            tuple(each.path): each.leading_comments or each.trailing_comments
            for each in file.source_code_info.location
        }

    def faults(self) -> Iterator[str]:
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, message.name, (_FILE_MESSAGE, number))
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, enum.name, (_FILE_ENUM, number))
        for number, service in enumerate(self._file.service):
            place = (_FILE_SERVICE, number)
            yield from self._name(service.name, service.name, _PASCAL, place)
            for each, method in enumerate(service.method):
                yield from self._comment(method.name, (*place, _SERVICE_METHOD, each))
                if self._is_strict:
                    yield from self._types(method.name, method.input_type, method.output_type)

    def _types(self, name: str, asked: str, told: str) -> Iterator[str]:
        """Each method has its own messages, so that both can grow."""
        package = self._file.package
        if (asked, told) != (f".{package}.{name}Request", f".{package}.{name}Response"):
            yield f"{name} does not go from {name}Request to {name}Response"

    def _message(self, message: DescriptorProto, name: str, place: _Place) -> Iterator[str]:
        if message.options.map_entry:
            return
        yield from self._name(name, message.name, _PASCAL, place)
        for number, field in enumerate(message.field):
            where = (*place, _MESSAGE_FIELD, number)
            yield from self._name(f"{name}.{field.name}", field.name, _SNAKE, where)
        for number, oneof in enumerate(message.oneof_decl):
            if not any(f.proto3_optional and f.oneof_index == number for f in message.field):
                where = (*place, _MESSAGE_ONEOF, number)
                yield from self._name(f"{name}.{oneof.name}", oneof.name, _SNAKE, where)
        for number, nested in enumerate(message.nested_type):
            where = (*place, _MESSAGE_NESTED, number)
            yield from self._message(nested, f"{name}.{nested.name}", where)
        for number, enum in enumerate(message.enum_type):
            where = (*place, _MESSAGE_ENUM, number)
            yield from self._enum(enum, f"{name}.{enum.name}", where)

    def _enum(self, enum: EnumDescriptorProto, name: str, place: _Place) -> Iterator[str]:
        yield from self._name(name, enum.name, _PASCAL, place)
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        for number, value in enumerate(enum.value):
            where = (*place, _ENUM_VALUE, number)
            yield from self._name(f"{name}.{value.name}", value.name, _CONSTANT, where)
            if self._is_strict and not value.name.startswith(prefix):
                yield f"{name}.{value.name} does not begin with {prefix}"
        if self._is_strict and enum.value[0].name != f"{prefix}UNSPECIFIED":
            yield f"{name} has no {prefix}UNSPECIFIED = 0"

    def _name(self, name: str, own: str, form: re.Pattern[str], place: _Place) -> Iterator[str]:
        if not form.fullmatch(own):
            yield f"{name} is not written as its kind is"
        yield from self._comment(name, place)

    def _comment(self, name: str, place: _Place) -> Iterator[str]:
        if self._is_strict and not self._comments.get(place, "").strip():
            yield f"{name} has no comment"
