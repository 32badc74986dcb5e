"""Compiles one API version of a schema to one flat decode function.

The source of such a function, for two fixed fields and an array of structs::

    def decode(buf, view, p, end, left):
        v1, v2, n3 = S1(buf, p)
        p += 9
        if n3 > 127:
            n3, p = uvarint(buf, p - 1)
        left -= n3
        if left < 0:
            refuse_count()
        ...
        return Message(v1, v2, v4), p

One call unpacks adjacent values of a fixed size, together with the first byte of a length after
them. Reading beyond the end raises at once (``struct.error``, ``IndexError``), or the one check of
the position at the very end finds it: slices of strings and records never fail. Elements of arrays
and tagged fields count against ``left``, because the time and the memory that decoding needs depend
on their number more than on the bytes of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from stele.errors import SteleError
from stele.wire.kafka import primitives
from stele.wire.kafka.schema import FIXED, Field

Decoder = Callable[[Any, memoryview, int, int, int], tuple[Any, int]]
"""(buffer, a view of it, position, end, allowed elements) → (message, position after it)."""

SlicedDecoder = Callable[[Any, memoryview, int, int, int], Generator[None, None, tuple[Any, int]]]
"""The same as a generator that yields after every SLICE_ELEMENTS elements."""


def compile_decoder(
    root: str,
    fields: list[Field],
    version: int,
    flexible: bool,
    classes: dict[str, type],
    *,
    in_slices: bool = False,
) -> Any:
    """A function that decodes a ``root`` (a name in ``classes``): a Decoder or a SlicedDecoder."""
    writer = _DecoderWriter(version, flexible, in_slices)
    if in_slices:
        writer.begin_slices()
    message = writer.struct(root, fields)
    writer.line(f"return {message}, p")
    source = "def decode(buf, view, p, end, left):\n" + "\n".join(writer.lines)
    namespace: dict[str, Any] = {**writer.constants, **classes}
    exec(compile(source, f"<decode {root} v{version}>", "exec"), namespace)
    return namespace["decode"]


def smallest_size(each: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that one value of a field (one element of an array) takes."""
    if each.type in FIXED:
        return FIXED[each.type][1]
    if not each.is_struct:
        return 1 if flexible else 4 if each.type in ("bytes", "records") else 2
    size = 1 if flexible else 0
    for nested in each.fields:
        if version in nested.versions and nested.tag is None:
            if nested.is_array:
                size += 1 if flexible else 4
            else:
                size += smallest_size(nested, version, flexible)
    return size


class _DecoderWriter:
    def __init__(self, version: int, flexible: bool, in_slices: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.in_slices = in_slices
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {
            "uvarint": primitives.read_uvarint,
            "numbers": primitives.read_numbers,
            "refuse_null": primitives.refuse_null,
            "refuse_length": primitives.refuse_length,
            "refuse_count": primitives.refuse_count,
            "ZERO_UUID": primitives.ZERO_UUID,
        }
        self._indent = 1
        self._names = 0
        # Fixed-size values that are not read yet: format, variable.
        self._run: list[tuple[str, str]] = []

    def line(self, text: str) -> None:
        """Write a statement, after the one that reads the pending fixed-size values."""
        self._flush()
        self.lines.append("    " * self._indent + text)

    def begin_slices(self) -> None:
        """The variable ``slice`` counts down over all loops together, even if they are nested."""
        self.line(f"slice = {primitives.SLICE_ELEMENTS}")
        self.line("if False:")
        self.line("    yield")  # it is a generator even without a loop

    def _one_element_less(self) -> None:
        if self.in_slices:
            self.line("slice -= 1")
            self.line("if not slice:")
            self.line(f"    slice = {primitives.SLICE_ELEMENTS}")
            self.line("    yield")

    def struct(self, class_name: str, fields: list[Field]) -> str:
        """Write the reading of a struct. Returns the expression that makes it."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for each in fields:
            if self.version not in each.versions:
                values[each.name] = default_of(each)
            elif each.tag is not None:
                tagged.append(each)
            else:
                values[each.name] = self._field(each)
        if self.flexible:
            values |= self._tagged_fields(tagged)
        arguments = ", ".join(values[each.name] for each in fields)
        return f"{class_name}({arguments})"

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _fixed(self, format_: str, prefix: str = "v") -> str:
        name = self._name(prefix)
        self._run.append((format_, name))
        return name

    def _flush(self) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        layout = struct.Struct(">" + "".join(format_ for format_, _ in run))
        if layout.format == ">B":
            self.line(f"{run[0][1]} = buf[p]")
        else:
            unpack = self._name("S")
            self.constants[unpack] = layout.unpack_from
            names = ", ".join(name for _, name in run)
            self.line(f"{names}{',' if len(run) == 1 else ''} = {unpack}(buf, p)")
        self.line(f"p += {layout.size}")

    def _uvarint(self) -> str:
        name = self._fixed("B", "n")
        self.line(f"if {name} > 127:")
        self.line(f"    {name}, p = uvarint(buf, p - 1)")
        return name

    def _field(self, each: Field) -> str:
        if each.is_array:
            return self._array(each)
        if each.type in FIXED:
            return self._fixed(FIXED[each.type][0])
        if each.is_struct:
            return self._one_struct(each)
        return self._bytes_like(each.type, each.is_nullable(self.version))

    def _one_struct(self, each: Field) -> str:
        if not each.is_nullable(self.version):
            return self.struct(each.type, each.fields)
        present = self._fixed("b", "n")
        result = self._name("v")
        self.line(f"{result} = None")
        self.line(f"if {present} >= 0:")
        self._indent += 1
        self.line(f"{result} = {self.struct(each.type, each.fields)}")
        self._indent -= 1
        return result

    def _bytes_like(self, type_: str, nullable: bool) -> str:
        """Write the reading of a string, bytes or records: a length and that many bytes."""
        result, end = self._name("v"), self._name("q")
        if self.flexible:
            size = self._uvarint()
            is_null, stop = f"not {size}", f"p + {size} - 1"
        else:
            size = self._fixed("h" if type_ == "string" else "i", "n")
            is_null, stop = f"{size} < 0", f"p + {size}"
        self.line(f"if {is_null}:")
        self.line(f"    {result} = None" if nullable else "    refuse_null()")
        self.line("else:")
        self.line(f"    {end} = {stop}")
        if type_ == "string":
            if self.flexible:  # the other form cannot have longer ones
                self.line(f"    if {size} > {primitives.STRING_BYTES_MAX + 1}:")
                self.line("        refuse_length()")
            self.line(f"    {result} = str(buf[p:{end}], 'utf-8')")
        elif type_ == "bytes":
            self.line(f"    {result} = bytes(view[p:{end}])")
        else:
            self.line(f"    {result} = view[p:{end}]")
        self.line(f"    p = {end}")
        return result

    def _array(self, each: Field) -> str:
        result = self._name("v")
        if self.flexible:
            count = self._uvarint()
            is_null = f"not {count}"
        else:
            count = self._fixed("i", "n")
            is_null = f"{count} < 0"
        nullable = each.is_nullable(self.version)
        self.line(f"if {is_null}:")
        self.line(f"    {result} = None" if nullable else "    refuse_null()")
        self.line("else:")
        self._indent += 1
        if self.flexible:
            self.line(f"{count} -= 1")
        smallest = smallest_size(each, self.version, self.flexible)
        self.line(f"if {count} * {smallest} > end - p:")
        self.line("    refuse_length()")
        self._allow(count)
        self._elements(each, result, count)
        self._indent -= 1
        return result

    def _allow(self, count: str) -> None:
        self.line(f"left -= {count}")
        self.line("if left < 0:")
        self.line("    refuse_count()")

    def _elements(self, each: Field, result: str, count: str) -> None:
        if each.type in FIXED and each.type not in ("bool", "uuid"):
            format_, size = FIXED[each.type]
            self.line(f"{result} = numbers({format_!r}, {count}, buf, p)")
            self.line(f"p += {count} * {size}")
            return
        self.line(f"{result} = []")
        self.line(f"for _ in range({count}):")
        self._indent += 1
        if each.is_struct:
            value = self.struct(each.type, each.fields)
        elif each.type in FIXED:
            value = self._fixed(FIXED[each.type][0])
        else:
            value = self._bytes_like(each.type, nullable=False)
        self.line(f"{result}.append({value})")
        self._one_element_less()
        self._indent -= 1

    def _tagged_fields(self, tagged: list[Field]) -> dict[str, str]:
        """Write the reading of known tagged fields. Others are skipped. Both must have the size
        that they announce."""
        results = {each.name: self._name("v") for each in tagged}
        count = self._fixed("B", "n")
        for each in tagged:
            self.line(f"{results[each.name]} = {default_of(each)}")
        tag, size, end = self._name("t"), self._name("n"), self._name("q")
        self.line(f"if {count}:")
        self._indent += 1
        self.line(f"if {count} > 127:")
        self.line(f"    {count}, p = uvarint(buf, p - 1)")
        self._allow(count)
        self.line(f"for _ in range({count}):")
        self._indent += 1
        self.line(f"{tag}, p = uvarint(buf, p)")
        self.line(f"{size}, p = uvarint(buf, p)")
        self.line(f"{end} = p + {size}")
        self.line(f"if {end} > end:")
        self.line("    refuse_length()")
        for each in tagged:
            self.line(f"if {tag} == {each.tag}:")
            self._indent += 1
            self.line(f"{results[each.name]} = {self._field(each)}")
            self.line(f"if p != {end}:")
            self.line("    refuse_length()")
            self._indent -= 1
        self.line(f"p = {end}")
        self._one_element_less()
        self._indent -= 2
        return results


def default_of(each: Field) -> str:
    """A Python expression for the value of a field that a message lacks."""
    if each.nullable is not None:
        return "None"
    if each.is_array:
        return "[]"
    if each.default is not None:
        if each.type == "bool":
            return "True" if each.default == "true" else "False"
        return repr(each.default) if each.type == "string" else each.default
    if each.is_struct:
        return "None"
    try:
        return _DEFAULTS[each.type]
    except KeyError:
        raise SteleError(f"no default for the type {each.type}") from None


_DEFAULTS = {
    "bool": "False",
    "int8": "0",
    "int16": "0",
    "uint16": "0",
    "int32": "0",
    "uint32": "0",
    "int64": "0",
    "float64": "0.0",
    "uuid": "ZERO_UUID",
    "string": "''",
    "bytes": "b''",
    "records": "b''",
}
