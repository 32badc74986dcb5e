"""The CSV files of offsets that Kafka's group tool exports and reads.

Without a header: ``topic,partition,offset``. With several groups: ``group,topic,partition,offset``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from cli.output import CommandError
from stele.ids import TopicPartition

Offsets = dict[TopicPartition, int]


def read_offsets(path: Path, groups: list[str]) -> dict[str, Offsets]:
    """The offsets by group. Lines without a group are for the only one of ``groups``.

    Raises CommandError that says what is wrong with the file, and where.
    """
    found: dict[str, Offsets] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not a CSV file: {error}") from error
    for number, row in enumerate(rows, start=1):
        where = f"{path}: row {number}"
        fields = [field.strip() for field in row]
        if len(fields) == 3:
            if len(groups) != 1:
                raise CommandError(f"{where} names no group, and there are {len(groups)} of them")
            fields = [groups[0], *fields]
        if len(fields) != 4:
            raise CommandError(f"{where} is not of the form [group,]topic,partition,offset")
        group, topic, partition, offset = fields
        name = TopicPartition(topic, _number(partition, "partition", where))
        offsets = found.setdefault(group, {})
        if name in offsets:
            raise CommandError(f"{where}: {name} of group {group!r} is there already")
        offsets[name] = _number(offset, "offset", where)
    if not found:
        raise CommandError(f"{path} names no partitions")
    return found


def _number(text: str, what: str, where: str) -> int:
    if not (text.isdecimal() and text.isascii()):
        raise CommandError(f"{where}: the {what} {text!r} is not a number")
    return int(text)


def offsets_text(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """The form that ``read_offsets`` reads: groups are named if there are several."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for group, of_group in offsets.items():
        for (topic, partition), offset in sorted(of_group.items()):
            row = (topic, partition, offset)
            writer.writerow(row if len(offsets) == 1 else (group, *row))
    return written.getvalue()
