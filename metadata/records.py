"""The value of a record of the metadata log: one serialized ``MetadataRecord``, no key."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from stele.errors import SteleError
from stele.wire.v1.metadata_pb2 import MetadataRecord

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 8
"""The newest format of the records that this version knows; ``metadata.features`` has all."""


class MetadataError(SteleError):
    """A metadata record cannot be read or does not fit the image it is replayed on.

    Committed records always fit, so this is a broken log or a bug: the node must stop.
    """


def encode(record: MetadataRecord) -> bytes:
    """Bytes for the log; the same record always gives the same bytes."""
    return record.SerializeToString(deterministic=True)


def decode(value: bytes) -> MetadataRecord:
    """The record in a log value. Raises MetadataError, also for a kind this version lacks."""
    try:
        record = MetadataRecord.FromString(value)
    except DecodeError as error:
        raise MetadataError(f"a metadata record of {len(value)} bytes is unreadable") from error
    if record.WhichOneof("record") is None:
        raise MetadataError("a metadata record is of a kind that this version does not know")
    return record
