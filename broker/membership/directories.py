"""What the log directories know of this broker's processes (``storage.incarnations``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.membership.identity import DirectoryHistory
from stele.ids import decode_uuid
from storage.directory import LogDirectory
from storage.errors import StorageError

logger = logging.getLogger(__name__)


async def mark(directories: Sequence[LogDirectory], incarnation_id: bytes) -> bool:
    """Leave this process's id in every directory, before it registers. False if one has no room for
    it. Raises StorageError."""
    try:
        marked = [await each.incarnations.begin(incarnation_id) for each in directories]
    except OSError as error:
        raise StorageError(f"a log directory cannot be written: {error}") from error
    return all(marked)


def history(directory: LogDirectory) -> DirectoryHistory:
    """For the registration."""
    return DirectoryHistory(
        decode_uuid(directory.properties.directory_id),
        directory.previous_broker_epoch,
        directory.incarnations.earlier,
    )


async def forget_earlier(directories: Sequence[LogDirectory], incarnation_id: bytes) -> None:
    """This process is the one that registered last. As long as the disks do not say so, they name
    the processes before it, too, which does no harm."""
    for directory in directories:
        try:
            await directory.incarnations.registered(incarnation_id)
        except OSError as error:
            logger.error("%s: %s", directory.path, error)
