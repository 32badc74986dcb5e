"""How a node writes its log: lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from stele.printable import printable

JSON: Final = "json"

AUDIT_LOGGER: Final = "stele.audit"
"""The logger of denied requests. Each message is an object of JSON."""

_FOR_PEOPLE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DAY_AND_TIME: Final = "%Y-%m-%dT%H:%M:%S"


def formatter(format_name: str, node_id: int) -> logging.Formatter:
    """``format_name``: the value of ``logging.format``."""
    if format_name == JSON:
        return JsonFormatter(node_id)
    return TextFormatter(_FOR_PEOPLE)


class TextFormatter(logging.Formatter):
    """Lines for people. A message is one line, and changes nothing on a terminal: the names of
    users and clients are in it, and could look like lines of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging calls it
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """``time`` in UTC (ISO 8601), ``level``, ``logger``, ``node``, ``message``; with an exception
    also ``stack``. A record is one line, whatever its message contains."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line: dict[str, object] = {
            "time": f"{_utc(seconds)}.{milliseconds:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "node": self._node_id,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_DAY_AND_TIME)
