"""Compiles one API version of a schema to one flat encode function.

Small values are collected as parts and joined. Records are passed on unchanged, so a message is a
list of buffers for ``writelines`` and no record byte is copied. Adjacent values of a fixed size are
packed by one call. A field that the version lacks is left out, whatever its value is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from stele.wire.kafka import primitives
from stele.wire.kafka.decoder import default_of
from stele.wire.kafka.schema import FIXED, Field
from stele.world import Buffer

Encoder = Callable[[Any, list[Buffer], int], None]
"""(message, buffers to add to, allowed elements in its arrays of anything but numbers)."""

SlicedEncoder = Callable[[Any, list[Buffer]], Generator[None, None, None]]
"""The same as a generator that yields after every SLICE_ELEMENTS elements and allows any number."""


def compile_encoder(
    root: str, fields: list[Field], version: int, flexible: bool, *, in_slices: bool = False
) -> Any:
    """A function that encodes the struct ``root``: an Encoder or a SlicedEncoder."""
    writer = _EncoderWriter(version, flexible, in_slices)
    if in_slices:
        # It counts down over all loops together, even if they are nested.
        writer.line(f"slice = {primitives.SLICE_ELEMENTS}")
        writer.line("if False:")
        writer.line("    yield")  # it is a generator even without a loop
    writer.struct("m", fields)
    writer.line("out.append(b''.join(parts))")
    arguments = "m, out" if in_slices else "m, out, left"
    source = f"def encode({arguments}):\n    parts = []\n" + "\n".join(writer.lines)
    namespace: dict[str, Any] = dict(writer.constants)
    exec(compile(source, f"<encode {root} v{version}>", "exec"), namespace)
    return namespace["encode"]


class _EncoderWriter:
    def __init__(self, version: int, flexible: bool, in_slices: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.in_slices = in_slices
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {
            "U": primitives.UVARINTS,
            "numbers": primitives.write_numbers,
            "refuse_count": primitives.refuse_count,
            "ZERO_UUID": primitives.ZERO_UUID,
        }
        self._parts = "parts"  # the variable of the list to which parts are added
        self._indent = 1
        self._names = 0
        self._exprs: list[str] = []  # expressions of parts that are not written yet
        self._run: list[tuple[str, str]] = []  # fixed-size values after them: format, expression

    def line(self, text: str) -> None:
        """Write a statement after the pending parts."""
        self._flush()
        self._statement(text)

    def _statement(self, text: str) -> None:
        """Write a statement that may be before the pending parts."""
        self.lines.append("    " * self._indent + text)

    def struct(self, value: str, fields: list[Field]) -> None:
        tagged: list[Field] = []
        for each in fields:
            if self.version in each.versions:
                if each.tag is not None:
                    tagged.append(each)
                else:
                    self._field(each, f"{value}.{each.name}")
        if self.flexible:
            if tagged:
                self._tagged_fields(value, tagged)
            else:
                self._fixed("B", "0")

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _fixed(self, format_: str, expression: str) -> None:
        self._run.append((format_, expression))

    def _part(self, expression: str) -> None:
        self._flush_run()
        self._exprs.append(expression)

    def _flush_run(self) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        layout = struct.Struct(">" + "".join(format_ for format_, _ in run))
        if all(expression == "0" for _, expression in run):
            self._exprs.append(repr(bytes(layout.size)))
            return
        pack = self._name("S")
        self.constants[pack] = layout.pack
        self._exprs.append(f"{pack}({', '.join(expression for _, expression in run)})")

    def _flush(self) -> None:
        self._flush_run()
        exprs, self._exprs = self._exprs, []
        if len(exprs) == 1:
            self._statement(f"{self._parts}.append({exprs[0]})")
        elif exprs:
            self._statement(f"{self._parts} += ({', '.join(exprs)})")

    def _field(self, each: Field, value: str) -> None:
        nullable = each.is_nullable(self.version)
        if each.is_array:
            self._array(each, value, nullable)
        elif each.type in FIXED:
            self._fixed(FIXED[each.type][0], value)
        elif each.is_struct:
            self._one_struct(each, value, nullable)
        elif each.type == "records":
            self._records(value, nullable)
        else:
            self._bytes_like(each.type, value, nullable)

    def _one_struct(self, each: Field, value: str, nullable: bool) -> None:
        if not nullable:
            self.struct(value, each.fields)
            return
        name = self._name("m")
        self.line(f"{name} = {value}")
        self.line(f"if {name} is None:")
        self._indent += 1
        self._fixed("b", "-1")
        self._flush()
        self._indent -= 1
        self.line("else:")
        self._indent += 1
        self._fixed("b", "1")
        self.struct(name, each.fields)
        self._flush()
        self._indent -= 1

    def _bytes_like(self, type_: str, value: str, nullable: bool) -> None:
        content = self._name("s")
        encoded = f"{value}.encode()" if type_ == "string" else value
        if not nullable:
            self._statement(f"{content} = {encoded}")
            size = f"len({content})"
        else:
            size = self._name("n")
            self._statement(f"{content} = {value}")
            self._statement(f"if {content} is None:")
            self._statement(f"    {content}, {size} = b'', -1")
            self._statement("else:")
            if type_ == "string":
                self._statement(f"    {content} = {content}.encode()")
            self._statement(f"    {size} = len({content})")
        if self.flexible:
            self._part(f"U[{size} + 1]")
        else:
            self._fixed("h" if type_ == "string" else "i", size)
        self._part(content)

    def _length(self, size: str) -> None:
        if self.flexible:
            self._part(f"U[{size} + 1]")
        else:
            self._fixed("i", size)

    def _records(self, value: str, nullable: bool) -> None:
        """Write the encoding of records: what came before becomes one buffer, then follow the
        records' own buffers."""
        records, size = self._name("r"), self._name("n")
        self._statement(f"{records} = {value}")
        self._statement(f"if {records} is None:")
        if nullable:
            self._statement(f"    {records}, {size} = (), -1")
        else:
            self._statement("    raise TypeError('null records')")
        self._statement("else:")
        self._statement(f"    if type({records}) is not list:")
        self._statement(f"        {records} = ({records},)")
        self._statement(f"    {size} = sum(map(len, {records}))")
        self._length(size)
        self.line(f"if {records}:")
        self.line("    out.append(b''.join(parts))")
        self.line("    parts.clear()")
        self.line(f"    out += {records}")

    def _array(self, each: Field, value: str, nullable: bool) -> None:
        array, size = self._name("a"), self._name("n")
        self._statement(f"{array} = {value}")
        if nullable:
            self._statement(f"if {array} is None:")
            self._statement(f"    {array}, {size} = (), -1")
            self._statement("else:")
            self._statement(f"    {size} = len({array})")
            self._length(size)
        else:
            self._length(f"len({array})")
        if each.type in FIXED and each.type not in ("bool", "uuid"):
            self._part(f"numbers({FIXED[each.type][0]!r}, {array})")
            return
        if not self.in_slices:
            self._statement(f"left -= len({array})")
            self._statement("if left < 0:")
            self._statement("    refuse_count()")
        element = self._name("m")
        self.line(f"for {element} in {array}:")
        self._indent += 1
        if each.is_struct:
            self.struct(element, each.fields)
        elif each.type in FIXED:
            self._fixed(FIXED[each.type][0], element)
        else:
            self._bytes_like(each.type, element, nullable=False)
        self._flush()
        if self.in_slices:
            self._statement("slice -= 1")
            self._statement("if not slice:")
            self._statement(f"    slice = {primitives.SLICE_ELEMENTS}")
            # Joined here, so that the last slice does not join the whole message.
            self._statement("    out.append(b''.join(parts))")
            self._statement("    parts.clear()")
            self._statement("    yield")
        self._indent -= 1

    def _tagged_fields(self, value: str, tagged: list[Field]) -> None:
        """Write the encoding of tagged fields, each into its own list, because its size comes
        first."""
        count, fields = self._name("n"), self._name("p")
        self.line(f"{count} = 0")
        self.line(f"{fields} = []")
        outer = self._parts
        for each in sorted(tagged, key=lambda each: each.tag or 0):
            member = f"{value}.{each.name}"
            self.line(f"if {self._is_set(each, member)}:")
            self._indent += 1
            self._parts = self._name("p")
            self.line(f"{self._parts} = []")
            self._field(each, member)
            body = self._name("s")
            self.line(f"{body} = b''.join({self._parts})")
            self.line(f"{count} += 1")
            self.line(f"{fields} += (U[{each.tag}], U[len({body})], {body})")
            self._indent -= 1
        self._parts = outer
        self.line(f"{outer}.append(U[{count}])")
        self.line(f"{outer} += {fields}")

    def _is_set(self, each: Field, member: str) -> str:
        """An expression for whether a tagged field differs from its default."""
        if each.is_array:
            return f"{member} is not None" if each.nullable else member
        if each.is_struct or each.nullable is not None:
            return f"{member} is not None"
        if each.type in ("string", "bytes") and each.default is None:
            return member
        return f"{member} != {default_of(each)}"
