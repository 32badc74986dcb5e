"""Lines of a file, plain or gzipped; what is wrong with the file is one line for a person."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from cli.output import CommandError

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_lines(file: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if need be. Raises CommandError, also while it is read."""
    try:
        with file.open("rb") as plain:
            gzipped = plain.read(2) == _GZIP_MAGIC or file.suffix == ".gz"
            plain.seek(0)
            if gzipped:
                with gzip.open(plain) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield plain
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CommandError(f"{file} is cut short or no whole gzip file: {error}") from None
    except OSError as error:
        if error.filename != str(file):  # not of this file
            raise
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
