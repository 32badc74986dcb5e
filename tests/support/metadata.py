"""Dumb twins of what images keep for quick look-ups."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from metadata.topics import metric_name


def metric_names(topics: Iterable[str]) -> Map[str, tuple[str, ...]]:
    """What an image of these topics has as ``metric_names``."""
    found: dict[str, tuple[str, ...]] = {}
    for topic in sorted(topics):
        if "." in topic or "_" in topic:
            found[metric_name(topic)] = (*found.get(metric_name(topic), ()), topic)
    return Map(found)
