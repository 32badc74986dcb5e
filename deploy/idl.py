"""Checks that a change of ``proto/`` breaks no client and no log.

``proto/locked.txt`` has a line for every field, enum value and method. ``scripts/generate`` adds
lines for new ones (``python -m deploy.idl``), and removes none. A line that the IDL no longer
fulfils is a break. A removed field or value is ``reserved``, with its number and its name, and its
line stays. An intended break removes the line by hand.

A service, method or message that is removed as a whole can reserve nothing. Its lines make room for
one line, ``retired NAME: why``. Nothing may have the name again, since it would mean something else
to older programs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

PROTO: Final = Path(__file__).resolve().parent.parent / "proto"
LOCK: Final = PROTO / "locked.txt"

RETIRED: Final = "retired "
"""The beginning of a line of the lock for a name that nothing may have again."""

_TYPES = {number: name for name, number in FieldDescriptorProto.Type.items()}


def compiled(directory: Path = PROTO) -> FileDescriptorSet:
    """All files of a directory, with their comments. Raises ValueError if one is no IDL."""
    from grpc_tools import protoc  # which only developers have

    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.proto"))
    # protoc knows google/protobuf/*.proto by itself, when it is started as a program.
    known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "set"
        options = [f"-I{directory}", f"-I{known}", f"--descriptor_set_out={target}"]
        if protoc.main(["protoc", *options, "--include_source_info", *files]) != 0:
            raise ValueError(f"{directory} cannot be compiled")
        return FileDescriptorSet.FromString(target.read_bytes())


def lines(files: FileDescriptorSet) -> list[str]:
    """What clients and logs rely on: each line an owner, a number or nothing, a name and a type."""
    found: list[str] = []
    for file in files.file:
        for message in file.message_type:
            found += _fields(message, file.package)
        for enum in file.enum_type:
            found += _values(enum, file.package)
        for service in file.service:
            for method in service.method:
                asked = _streamed(method.input_type, method.client_streaming)
                told = _streamed(method.output_type, method.server_streaming)
                found.append(f"{file.package}.{service.name} rpc {method.name} {asked} -> {told}")
    return sorted(found)


def breaks(locked: Iterable[str], files: FileDescriptorSet) -> list[str]:
    """The locked lines that the files do not fulfil."""
    present = set(lines(files))
    names = _names(files)
    reserved = _Reserved(files)
    found = []
    for line in locked:
        if line.startswith(RETIRED):
            is_kept = line.removeprefix(RETIRED).partition(":")[0] not in names
        else:
            is_kept = line in present or reserved.has(line)
        if not is_kept:
            found.append(line)
    return found


def _names(files: FileDescriptorSet) -> set[str]:
    """The full names of services, methods, messages and enums."""
    found: set[str] = set()
    for file in files.file:
        found |= {f"{file.package}.{each.name}" for each in file.message_type}
        found |= {f"{file.package}.{each.name}" for each in file.enum_type}
        for service in file.service:
            name = f"{file.package}.{service.name}"
            found |= {name, *(f"{name}.{method.name}" for method in service.method)}
    return found


def _streamed(type_name: str, is_stream: bool) -> str:
    return f"stream {type_name[1:]}" if is_stream else type_name[1:]


def _fields(message: DescriptorProto, outer: str) -> Iterator[str]:
    owner = f"{outer}.{message.name}"
    for field in message.field:
        kind = field.type_name[1:] or _TYPES[field.type].removeprefix("TYPE_").lower()
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            kind = f"repeated {kind}"
        elif field.proto3_optional:
            kind = f"optional {kind}"
        elif field.HasField("oneof_index"):
            kind = f"{kind} of {message.oneof_decl[field.oneof_index].name}"
        yield f"{owner} {field.number} {field.name} {kind}"
    for nested in message.nested_type:
        yield from _fields(nested, owner)
    for enum in message.enum_type:
        yield from _values(enum, owner)


def _values(enum: EnumDescriptorProto, outer: str) -> Iterator[str]:
    for value in enum.value:
        yield f"{outer}.{enum.name} {value.number} {value.name}"


class _Reserved:
    """The numbers and names that messages and enums have reserved."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self._numbers: dict[str, list[range]] = {}
        self._names: dict[str, Sequence[str]] = {}
        for file in files.file:
            for message in file.message_type:
                self._add_message(message, file.package)
            for enum in file.enum_type:
                self._add_enum(enum, file.package)

    def has(self, line: str) -> bool:
        """Whether what the line describes was removed as it should be."""
        owner, number, name, *_ = line.split(" ")
        return name in self._names.get(owner, ()) and any(
            int(number) in each for each in self._numbers.get(owner, ())
        )

    def _add_message(self, message: DescriptorProto, outer: str) -> None:
        owner = f"{outer}.{message.name}"
        self._names[owner] = message.reserved_name
        self._numbers[owner] = [range(each.start, each.end) for each in message.reserved_range]
        for nested in message.nested_type:
            self._add_message(nested, owner)
        for enum in message.enum_type:
            self._add_enum(enum, owner)

    def _add_enum(self, enum: EnumDescriptorProto, outer: str) -> None:
        owner = f"{outer}.{enum.name}"
        self._names[owner] = enum.reserved_name
        # The end of an enum's range belongs to it, unlike that of a message's.
        self._numbers[owner] = [range(each.start, each.end + 1) for each in enum.reserved_range]


def main() -> None:
    """Add what is new to the lock."""
    locked = set(LOCK.read_text().splitlines()) if LOCK.exists() else set()
    LOCK.write_text("".join(f"{line}\n" for line in sorted(locked | set(lines(compiled())))))


if __name__ == "__main__":
    main()
