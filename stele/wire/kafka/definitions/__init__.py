"""The schemas of the Kafka APIs as compact text. ``stele.wire.kafka.schema`` has the grammar.

The facts come from https://kafka.apache.org/protocol. Field and struct names are Kafka's in snake
case.
"""

from __future__ import annotations

from stele.wire.kafka.definitions import (
    access,
    administration,
    cluster,
    consumer_groups,
    data,
    groups,
    share_groups,
    transactions,
)
from stele.wire.kafka.schema import ApiSchema, parse

TEXTS = (
    data.TEXT,
    cluster.TEXT,
    groups.TEXT,
    consumer_groups.TEXT,
    share_groups.TEXT,
    administration.TEXT,
    access.TEXT,
    transactions.TEXT,
)

_parsed: dict[int, ApiSchema] = {}


def all_apis() -> list[ApiSchema]:
    """Every API that has a definition, by key."""
    if not _parsed:
        _parsed.update((api.key, api) for text in TEXTS for api in parse(text))
    return [_parsed[key] for key in sorted(_parsed)]


def find(key: int) -> ApiSchema:
    """The definition of one API. Raises KeyError if there is none."""
    all_apis()
    return _parsed[key]
