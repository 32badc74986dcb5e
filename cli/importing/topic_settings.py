"""The settings of topics, as the metadata log of a stopped broker has them.

Each broker in KRaft mode keeps a copy of ``__cluster_metadata-0`` in one of its log directories. A
snapshot of the log and what follows it tell which topics there are, and their own settings. Of the
records of Kafka's metadata (the JSON files in ``metadata/src/main/resources/common/metadata``)
three count: TopicRecord, ConfigRecord and RemoveTopicRecord.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cli.importing.source_log import SourceLog, records_in
from cli.output import CommandError, note
from metadata.config_keys import validate_topic_config
from stele.errors import ApiError
from stele.ids import TopicPartition
from stele.wire.kafka.primitives import MalformedMessageError, read_uvarint
from stele.wire.record import Record
from storage.directory_names import METADATA_TOPIC

TopicSettings = Mapping[str, Mapping[str, str]]
"""By topic and name. A topic without settings of its own is not in it."""

_METADATA: Final = TopicPartition(METADATA_TOPIC, 0)
_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_FRAME_VERSION: Final = 1
_TOPIC, _CONFIG, _REMOVE_TOPIC = 2, 4, 9
_OF_TOPIC: Final = 2
"""ConfigRecord.ResourceType."""
_ID_BYTES: Final = 16


def read_topic_settings(directories: Sequence[Path]) -> TopicSettings | None:
    """Of the copies in these directories the newest counts. None: there is none, as on brokers of a
    cluster with ZooKeeper. Raises CommandError."""
    copies = [
        SourceLog(path, _METADATA, 0, 0)
        for each in directories
        if (path := each / str(_METADATA)).is_dir()
    ]
    if not copies:
        return None
    newest = max(copies, key=lambda log: (log.summary.leader_epoch, log.summary.end_offset))
    replay = _Replay()
    begin = 0
    if (snapshot := _newest_snapshot(newest.summary.directory)) is not None:
        begin, path = snapshot
        for record in records_in(path):
            replay.take(record)
    for records in newest.records():
        for record in records:
            if record.offset >= begin:
                replay.take(record)
    return replay.settings


def _newest_snapshot(directory: Path) -> tuple[int, Path] | None:
    """The offset behind its last record, and its file. An unfinished one has another name."""
    found = [
        (int(match[1]), path)
        for path in directory.iterdir()
        if (match := _SNAPSHOT.fullmatch(path.name)) is not None
    ]
    return max(found, default=None)


@dataclass(slots=True)
class _Replay:
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    _names: dict[bytes, str] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Raises CommandError."""
        try:
            self._take(_Reader(record.value or b""))
        except (IndexError, UnicodeDecodeError, MalformedMessageError) as error:
            raise CommandError(
                f"{_METADATA}: the record at offset {record.offset} cannot be read: {error}. Give "
                "--no-settings to make topics without the settings that they have in Kafka"
            ) from None

    def _take(self, reader: _Reader) -> None:
        if reader.number() != _FRAME_VERSION:
            raise MalformedMessageError("an unknown version of its frame")
        kind, _ = reader.number(), reader.number()
        if kind == _TOPIC:
            name = reader.text()
            self._names[reader.take(_ID_BYTES)] = name
        elif kind == _REMOVE_TOPIC:
            self.settings.pop(self._names.pop(reader.take(_ID_BYTES), ""), None)
        elif kind == _CONFIG and reader.take(1)[0] == _OF_TOPIC:
            topic, name = reader.text(), reader.text()
            value = reader.text_or_none()
            if value is None:
                self.settings.get(topic, {}).pop(name, None)
            else:
                self.settings.setdefault(topic, {})[name] = value


class _Reader:
    """Reads a record from its beginning. Raises IndexError, UnicodeDecodeError,
    MalformedMessageError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise MalformedMessageError("it ends too early")
        taken, self._position = self._data[self._position : end], end
        return taken

    def text_or_none(self) -> str | None:
        """A compact string: its length and one more, 0 for none."""
        length = self.number() - 1
        return None if length < 0 else self.take(length).decode()

    def text(self) -> str:
        return self.text_or_none() or ""


# --------------------------------------------------------------------------- for the import


def accepted(topic: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without those that mean nothing here. Each of these is noted."""
    kept = {}
    for name, value in settings.items():
        try:
            validate_topic_config(name, value)
        except ApiError as error:
            note(f"stele: topic {topic}: {name}={value} is left out: {error.message}")
        else:
            kept[name] = value
    return kept


WHILE_IMPORTED: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing is deleted or compacted before all records are compared."""
