"""proto/stele/v1/errors.proto, written from the declared error codes."""

from __future__ import annotations

from stele.error_meanings import MEANINGS
from stele.errors import ErrorCode

_HEAD = """\
// Written by scripts/generate from stele/errors.py. Do not edit.
//
// Kafka's protocol error codes, which every answer of Stele carries. An answer's message says more.
syntax = "proto3";
package stele.v1;

option go_package = "stele/v1;stelev1";

enum ErrorCode {
"""


def text() -> str:
    """The whole file."""
    codes = sorted(ErrorCode, key=lambda code: (code is not ErrorCode.NONE, code.value))
    lines = []
    for code in codes:
        meaning = MEANINGS.get(code, "a code of Kafka's protocol that Stele does not use")
        lines.append(f"  // {meaning[0].upper()}{meaning[1:]}.")
        lines.append(f"  {code.name} = {code.value};")
    return _HEAD + "\n".join(lines) + "\n}\n"
