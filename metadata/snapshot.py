"""An image as records: what a snapshot of the metadata log holds (KIP-630). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metadata.delta import MetadataDelta
from metadata.image import EMPTY, PARTS, MetadataImage
from metadata.image_part import ImagePart
from metadata.records import decode, encode
from stele.wire.v1 import metadata_pb2 as pb


def records_of(image: MetadataImage) -> Iterator[bytes]:
    """Encoded records that make this image from the empty one. They do not hold its offset.

    The same image always gives the same bytes, on every node.
    """
    return (encode(record) for record in _records(image))


def image_of(end_offset: int, values: Sequence[bytes]) -> MetadataImage:
    """The image of a snapshot that holds everything below ``end_offset``.

    Raises MetadataError when the records do not fit together.
    """
    # A snapshot's records have no offsets of their own. The image takes the snapshot's.
    delta = MetadataDelta(EMPTY)
    delta.replay_all((decode(value) for value in values), offset=end_offset - 1)
    return delta.apply()


def _records(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    for name in PARTS:
        part: ImagePart = getattr(image, name)
        yield from part.records()
