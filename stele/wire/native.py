"""The compiled module that reads records, if it is there; ``native/README.md`` says what it does.

``STELE_NATIVE`` chooses. ``auto``, the default: the module if it is there, else Python. ``1``: the
module, and without it nothing starts. ``0``: Python, which is the reference.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from stele.errors import ConfigError

REVISION: Final = 7
"""As in ``native/src/lib.rs``: a module that was built from other sources is not used."""

VARIABLE: Final = "STELE_NATIVE"

T = TypeVar("T", bound=tuple[Any, ...])

Binary = tuple[int, bytes, bytes, bytes]
"""A column: the number of nulls, and Arrow's buffers of validity, offsets and data."""

Headers = tuple[int, bytes, bytes, Binary, Binary]
"""Lists of headers: the number of nulls, Arrow's buffers of validity and offsets, the names and the
values of all headers."""

Columns = tuple[bytes, bytes, Binary, Binary, Headers | None]
"""Times and offsets relative to their batch (each with 64 bits), keys, values, and headers where
they are asked for."""


class Slots(Protocol):
    """As ``storage.compaction.slots``, and two methods of ``storage.compaction.offset_map``."""

    @property
    def count(self) -> int: ...

    def put(self, low: int, high: int, offset: int) -> bool: ...

    def get(self, low: int, high: int) -> int: ...

    def put_keys(self, data: bytes, count: int, base_offset: int) -> bool | None:
        """As ``OffsetMap.put_keys``. None as for ``Native.decode_records``: nothing was put."""
        ...

    def kept_records(
        self, data: bytes, count: int, base_offset: int, drop_tombstones: bool
    ) -> tuple[bytes, int, bool, int] | None:
        """As ``OffsetMap.kept_records``. None as for ``Native.decode_records``."""
        ...


class Native(Protocol):
    """What the module has. The Python function of the same name is the reference."""

    def whole_records(
        self,
        data: bytes,
        position: int,
        number: int,
        stop: int,
        oldest_ms: int,
        newest_allowed_ms: int,
        keys_required: bool,
        newest_ms: int,
    ) -> tuple[int, int, int]:
        """As ``record_check.whole_records``."""
        ...

    def decode_records(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_time_ms: int | None,
        record: type[T],
    ) -> list[T] | None:
        """As ``record.decode_records``. None: the records are unsound, and Python says why."""
        ...

    def decode_consumer_records(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_time_ms: int | None,
        record: type[T],
        source: tuple[str, int, int, int],
    ) -> list[T] | None:
        """As that function of ``stele.wire.consumed``. None as for ``decode_records``."""
        ...

    def decode_columns(
        self, bodies: Sequence[bytes], counts: Sequence[int], with_headers: bool
    ) -> Columns | None:
        """The records of some batches, of whose bodies and counts of records these are. None as
        for ``decode_records``."""
        ...

    def stored_records(self, data: bytes, count: int, record: type[T]) -> list[T] | None:
        """As that function of ``storage.compaction``. None as for ``decode_records``."""
        ...

    Slots: Callable[[int, int], Slots]
    """Takes the number of slots, and of how many digests they may have."""

    def murmur2(self, key: bytes) -> int:
        """As that function of ``stele.producer.partitioner``."""
        ...

    def divide(
        self,
        records: list[tuple[Any, ...]],
        start: int,
        topic: str,
        field_count: int,
        partition_count: int,
        room_bytes: int,
        largest_bytes: int,
        keyless_partition: int | None,
        keyless_bytes: int,
        longest_key_bytes: int,
    ) -> tuple[int, int, int, dict[int, list[tuple[Any, ...]]]]:
        """As that function of ``stele.producer.runs``."""
        ...

    def encode_records(
        self,
        records: list[tuple[Any, ...]],
        start: int,
        delta: int,
        base_ms: int | None,
        room_bytes: int,
        now_ms: int,
    ) -> tuple[bytes, int, int, int, int] | None:
        """As ``record.encode_records``. None: a record is not plain, or the batch has no room."""
        ...


def load(setting: str) -> tuple[Native | None, str]:
    """The module, and in a few words what reads records and why. Raises ConfigError."""
    if setting == "0":
        return None, f"Python, as {VARIABLE}=0 says"
    if setting not in ("auto", "1"):
        raise ConfigError(f"{VARIABLE}={setting}: use auto, 1 or 0")
    try:
        module: Any = importlib.import_module("stele_native")
    except ImportError as error:
        reason = str(error)
    else:
        if module.REVISION == REVISION:
            return cast(Native, module), f"compiled, revision {REVISION}"
        reason = f"stele_native has revision {module.REVISION}, and {REVISION} is needed"
    if setting == "1":
        raise ConfigError(f"{VARIABLE}=1, and the compiled module is not there: {reason}")
    return None, f"Python: {reason}"


NATIVE, READER = load(os.environ.get(VARIABLE, "auto"))
