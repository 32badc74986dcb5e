"""Writes Python source from the definitions: the struct classes of each API, which are the modules
in ``messages/``, and the enumeration of the APIs' keys, ``api_key.py``.

Decoding and encoding need no generated code, but type checkers and readers do. The classes have
``__slots__`` and are no dataclasses, because making a hundred dataclasses would slow down every
start of a node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stele.wire.kafka.decoder import default_of
from stele.wire.kafka.schema import ApiSchema, Field, structs

_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}


def keys_source(apis: Sequence[ApiSchema]) -> str:
    """The module of the keys of the APIs, formatted as the formatter would."""
    members = "".join(f"    {api.module.upper()} = {api.key}\n" for api in apis)
    return f'''"""The keys of the APIs. Generated: scripts/generate-kafka."""

from __future__ import annotations

import enum


class ApiKey(enum.IntEnum):
    """The keys of the APIs that this codec knows."""

{members}'''


def source_of(api: ApiSchema) -> str:
    """The module of one API, formatted as the formatter would."""
    classes: list[str] = []
    structs_by_name: dict[str, str] = {}
    for root, fields in (("Request", api.request), ("Response", api.response)):
        for each in structs(fields):
            source = _class(each.type, each.fields)
            if each.type not in structs_by_name:
                structs_by_name[each.type] = source
                classes.append(source)
            elif structs_by_name[each.type] != source:
                raise ValueError(f"{api.name} has two different structs named {each.type}")
        classes.append(_class(api.name + root, fields))
    names = list(structs_by_name)
    body = "\n\n".join(classes)
    imports = ["Api", "ApiKey", "Struct"]
    imports += ["Records"] if re.search(r"\bRecords\b", body) else []
    imports += ["ZERO_UUID"] if "ZERO_UUID" in body else []
    imports.sort(key=lambda name: (not name.isupper(), name))
    constant = api.module.upper()
    return f'''"""{api.name}, API key {api.key}. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import {", ".join(imports)}


{body}

API: Final = Api(
    ApiKey.{constant},
    {api.name}Request,
    {api.name}Response,
    {_tuple(names)},
    min_version={api.versions.first},
    max_version={api.versions.last},
    flexible_from={api.flexible_from},
)
'''


def _tuple(names: list[str]) -> str:
    line = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    if len(line) + 5 <= 100:
        return line
    return "(\n" + "".join(f"        {name},\n" for name in names) + "    )"


def _class(name: str, fields: list[Field]) -> str:
    if not fields:
        return f"class {name}(Struct):\n    __slots__ = ()\n"
    slots = "".join(f'        "{each.name}",\n' for each in fields)
    parameters = "".join(f"        {_parameter(each)},\n" for each in fields)
    body = "".join(f"        {_assignment(each)}\n" for each in fields)
    lines = [f"class {name}(Struct):"]
    one_line = ", ".join(f'"{each.name}"' for each in fields) + ("," if len(fields) == 1 else "")
    if len(one_line) + 17 <= 100:
        lines.append(f"    __slots__ = ({one_line})")
    else:
        lines.append(f"    __slots__ = (\n{slots}    )")
    lines.append("")
    flat = f"    def __init__(self, {', '.join(map(_parameter, fields))}) -> None:"
    if len(flat) <= 100:
        lines.append(flat)
    else:
        lines.append(f"    def __init__(\n        self,\n{parameters}    ) -> None:")
    return "\n".join(lines) + "\n" + body


def _python_type(each: Field) -> str:
    name = each.type if each.is_struct else _TYPES.get(each.type, "int")
    name = f"list[{name}]" if each.is_array else name
    absent = each.is_struct and not each.is_array  # a tagged struct: None means its default
    optional = (each.nullable is not None or absent) and name != "Records"
    return f"{name} | None" if optional else name


def _parameter(each: Field) -> str:
    if each.is_array:
        name = _python_type(each).removesuffix(" | None")
        return f"{each.name}: {name} | None = None"
    return f"{each.name}: {_python_type(each)} = {default_of(each).replace(chr(39), chr(34))}"


def _assignment(each: Field) -> str:
    if each.is_array and each.nullable is None:
        return (
            f"self.{each.name}: {_python_type(each)} = [] if {each.name} is None else {each.name}"
        )
    return f"self.{each.name} = {each.name}"
