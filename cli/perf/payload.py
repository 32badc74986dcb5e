"""The values of the records that are sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cli.output import CommandError, UsageError

Payload = Callable[[int], bytes]
"""The value of the record with a number."""

_LETTERS: Final = bytes(ord("A") + each % 26 for each in range(256))
_SUPPLY_BYTES: Final = 4 * 1024 * 1024
"""Random letters repeat only after so many: no batch has the same value twice, which would let it
compress better than random letters do."""


def payload(
    record_size: int | None, file: Path | None, delimiter: str, *, monotonic: bool
) -> Payload:
    """Exactly one of the ways must be given, as with Kafka's tool. Raises CommandError."""
    if (record_size is not None) + (file is not None) + monotonic != 1:
        raise UsageError("give one of --record-size, --payload-file and --payload-monotonic")
    if record_size is not None:
        return random_letters(record_size)
    if file is not None:
        return _of_file(file, delimiter)
    return lambda number: b"%d" % number


def random_letters(size: int) -> Payload:
    """A to Z, the same ones in every run."""
    supply = random.Random(0).randbytes(max(_SUPPLY_BYTES, size)).translate(_LETTERS)
    places = len(supply) // size

    def value(number: int) -> bytes:
        start = number % places * size
        return supply[start : start + size]

    return value


def _of_file(file: Path, delimiter: str) -> Payload:
    """One of the file's texts at random, the same ones in every run."""
    separator = delimiter.replace("\\n", "\n").encode()
    if not separator:
        raise UsageError("--payload-delimiter must not be empty")
    texts = file.read_bytes().split(separator)
    if not texts[-1]:
        texts.pop()  # what follows the last delimiter
    if not texts:
        raise CommandError(f"{file} is empty")
    rng = random.Random(0)
    return lambda number: texts[rng.randrange(len(texts))]
