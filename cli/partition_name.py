"""A partition as people write it: ``orders-3``."""

from __future__ import annotations

from cli.output import CommandError


def parsed_partition(name: str) -> tuple[str, int]:
    """The topic and the number. Raises CommandError."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        raise CommandError(f"{name!r} is no partition: write TOPIC-NUMBER, for example orders-3")
    return topic, int(number)
