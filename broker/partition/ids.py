"""Which partition a broker means."""

from typing import NamedTuple


class PartitionId(NamedTuple):
    """A partition's lasting identity: a topic deleted and made again has another id."""

    topic_id: bytes
    partition: int
