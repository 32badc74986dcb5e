"""The plan of dead letters of a share partition as bytes.

Kafka has no such field. The bytes are a tagged field of the state's records, and of the requests
that write and read the state.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.coordinator.layout import VERSION, Reader, compact_length, tagged
from broker.share.values import LetterPlan

_HEAD: Final = struct.Struct(">16siqiq")
_RANGE: Final = struct.Struct(">qq")
_START: Final = VERSION.pack(0)


def encode_letters(plan: LetterPlan) -> bytes:
    head = _HEAD.pack(plan.topic_id, plan.partition, plan.producer_id, plan.sequence, plan.revision)
    ranges = b"".join(_RANGE.pack(*each) for each in plan.ranges)
    return _START + head + compact_length(len(plan.ranges)) + ranges + tagged({})


def newest_letters(before: LetterPlan | None, new: LetterPlan | None) -> LetterPlan | None:
    """The plan that counts after a write of ``new``, which may be a late one."""
    if before is None or new is None:
        return new or before
    return max(before, new, key=lambda each: each.revision)


def decode_letters(data: bytes) -> LetterPlan:
    """Raises ValueError."""
    reader = Reader(data, "a plan of dead letters", last_version=0, flexible_from=0)
    topic_id, partition = reader.uuid(), reader.int32()
    producer_id, sequence, revision = reader.int64(), reader.int32(), reader.int64()
    count = reader.array_length()
    ranges = tuple((reader.int64(), reader.int64()) for _ in range(count))
    reader.tags()
    return LetterPlan(topic_id, partition, producer_id, sequence, revision, ranges)
