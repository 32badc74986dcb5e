"""A stream that cannot begin."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader


class RefusedStreamReader(DataSourceStreamReader):
    """Says why as soon as Spark asks it for something.

    If ``streamReader`` raised, PySpark would stop the reader that it does not have, and its user
    would see only that error.
    """

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def _refuse(self, *_: Any) -> NoReturn:
        raise self._reason

    # Spark's names, those of streams that choose their batches among them.
    initialOffset: Any = _refuse  # noqa: N815
    latestOffset: Any = _refuse  # noqa: N815
    reportLatestOffset: Any = _refuse  # noqa: N815
    getDefaultReadLimit: Any = _refuse  # noqa: N815
    prepareForTriggerAvailableNow: Any = _refuse  # noqa: N815
    partitions: Any = _refuse
    read: Any = _refuse
