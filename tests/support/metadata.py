"""Dumb twins of the look-up tables of images."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map

from metadata.topics import metric_name


def metric_names(topics: Iterable[str]) -> Map[str, tuple[str, ...]]:
    """The ``metric_names`` of an image with these topics."""
    found: dict[str, tuple[str, ...]] = {}
    for topic in sorted(topics):
        if "." in topic or "_" in topic:
            found[metric_name(topic)] = (*found.get(metric_name(topic), ()), topic)
    return Map(found)
