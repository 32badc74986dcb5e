"""The schema language of the Kafka protocol, and its parser.

There is one line per field. Two spaces of indentation nest fields::

    api 1 Fetch 4-18 flexible 12+         key, name, versions served, first flexible version
    request
      max_wait_ms int32                   a field of every version
      session_id int32 @7+                from version 7 on; @4-12 and @3 work too
      session_epoch int32 @7+ =-1         the default, its value in versions that lack it, is -1
      rack_id string?9+                   nullable, from version 9 on; plain ``?``: always
      topics [FetchTopic]                 an array of structs, whose fields follow
        topic string @4-12
      replica_state ReplicaState #1       a tagged field: tag 1, absent while it has its default
        replica_id int32 =-1
    response
      ...

Types: bool, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes, records, a
struct, and arrays of all of these except bytes and records. A field's default is 0, "" or empty;
null for a nullable field. The versions of a nested field are within those of its outer field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stele.errors import SteleError

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of a fixed size: their ``struct`` format and their size in bytes."""

VARIABLE: Final = ("string", "bytes", "records")


class SchemaError(SteleError):
    """A definition's text does not follow the grammar."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


FIRST_OWN_TAG = 10_000
"""Kafka numbers the tagged fields of a struct from 0 on. So it will not meet these."""


@dataclass(slots=True)
class Field:
    name: str
    type: str  # for an array: the type of its elements
    is_array: bool
    versions: Versions
    nullable: Versions | None
    default: str | None  # as written; None: the default of the type
    tag: int | None
    fields: list[Field] = field(default_factory=list)  # the fields of a struct

    @property
    def is_struct(self) -> bool:
        return self.type not in FIXED and self.type not in VARIABLE

    @property
    def is_ours(self) -> bool:
        """Whether Kafka lacks the field. Kafka's clients skip tags that they do not know."""
        return self.tag is not None and self.tag >= FIRST_OWN_TAG

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


@dataclass(slots=True)
class ApiSchema:
    key: int
    name: str
    versions: Versions
    flexible_from: int | None
    request: list[Field] = field(default_factory=list)
    response: list[Field] = field(default_factory=list)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def module(self) -> str:
        """The name of the Python module with its classes. Example: list_offsets for ListOffsets."""
        return "".join("_" + c.lower() if c.isupper() else c for c in self.name).lstrip("_")


def parse(text: str) -> list[ApiSchema]:
    """All APIs of a definition's text, in its order. Raises SchemaError, which names the faulty
    line."""
    apis: list[ApiSchema] = []
    stack: list[tuple[int, list[Field], Versions]] = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        try:
            if words[0] == "api":
                apis.append(_parse_api(words))
            elif line in ("request", "response"):
                fields = apis[-1].request if line == "request" else apis[-1].response
                stack = [(2, fields, apis[-1].versions)]
            else:
                _parse_line(line, words, stack)
        except (ValueError, IndexError) as error:
            raise SchemaError(f"{line!r}: {error}") from error
    return apis


def _parse_api(words: list[str]) -> ApiSchema:
    _, key, name, versions, *rest = words
    flexible_from = int(rest[1].rstrip("+")) if rest else None
    return ApiSchema(int(key), name, _parse_versions(versions, Versions(0, 0)), flexible_from)


def _parse_line(
    line: str, words: list[str], stack: list[tuple[int, list[Field], Versions]]
) -> None:
    indent = len(line) - len(line.lstrip())
    while stack[-1][0] > indent:
        stack.pop()
    depth, fields, versions = stack[-1]
    if indent == depth + 2 and fields and fields[-1].is_struct:
        fields, versions = fields[-1].fields, fields[-1].versions
        stack.append((indent, fields, versions))
    elif indent != depth:
        raise ValueError("the indentation fits no level above")
    fields.append(_parse_field(words, versions))


def _parse_field(words: list[str], within: Versions) -> Field:
    name, type_text, *rest = words
    versions, default, tag = within, None, None
    for word in rest:
        sign, value = word[0], word[1:]
        if sign == "@":
            versions = _parse_versions(value, within)
        elif sign == "=":
            default = value
        elif sign == "#":
            tag = int(value)
        else:
            raise ValueError(f"{word!r} is not @versions, =default or #tag")
    type_text, mark, nullable_from = type_text.partition("?")
    nullable = None
    if mark:
        nullable = _parse_versions(nullable_from, versions) if nullable_from else versions
    is_array = type_text.startswith("[") and type_text.endswith("]")
    type_name = type_text[1:-1] if is_array else type_text
    if is_array and type_name in ("bytes", "records"):
        raise ValueError("arrays of this type do not exist")
    return Field(name, type_name, is_array, versions, nullable, default, tag)


def _parse_versions(text: str, within: Versions) -> Versions:
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), within.last)
    return Versions(int(first), int(last or first))


def structs(fields: list[Field]) -> Iterator[Field]:
    """Every field that defines a struct. Nested structs come before those that contain them."""
    for each in fields:
        if each.is_struct:
            yield from structs(each.fields)
            yield each
