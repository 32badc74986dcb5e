"""The processes that have used a log directory, as the directory itself knows them.

A disk may go back to an earlier state: a machine is restored from a snapshot, or from a backup.
Then its logs lack records that its broker had acknowledged. Each process writes its incarnation id
into the directory before it registers. Once it is registered, it removes the ids of the processes
before it. So the file has the id of the process that registered last, whatever crashed when.

Example: process A is registered, the file has A. Process B writes A, B and registers. If B crashes
before it hears of that, nobody knows on the disk whether B or A registered last: the file has both.
A disk of the time of A has A alone, and the controller knows of B.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from stele.ids import decode_uuid, encode_uuid
from storage.errors import LogDirectoryError, is_device_failure
from world.disk import Disk

INCARNATIONS_FILE: Final = ".incarnations"

logger = logging.getLogger(__name__)


class Incarnations:
    """The file of one directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.earlier: tuple[bytes, ...] = ()
        """The processes before this one. One of them registered last, unless none could write its
        id."""
        self._disk = disk
        self._path = f"{path}/{INCARNATIONS_FILE}"

    def read(self) -> None:
        """Raises OSError, LogDirectoryError."""
        if self._disk.exists(self._path):
            self.earlier = decode_incarnations(bytes(self._disk.read_file(self._path)), self._path)

    async def begin(self, incarnation_id: bytes) -> bool:
        """Write the id of this process, before it registers. False if the disk has no room for it.
        Raises OSError if the disk fails."""
        return await self._write((*self.earlier, incarnation_id))

    async def registered(self, incarnation_id: bytes) -> None:
        """This process is registered: those before it are no longer of interest."""
        await self._write((incarnation_id,))

    async def _write(self, incarnations: tuple[bytes, ...]) -> bool:
        try:
            await self._disk.replace_file(self._path, encode_incarnations(incarnations))
        except OSError as error:
            if is_device_failure(error):
                raise
            logger.warning("%s: cannot be written now: %s", self._path, error)
            return False
        return True


def encode_incarnations(incarnations: tuple[bytes, ...]) -> bytes:
    return json.dumps(
        {"version": 0, "incarnations": [encode_uuid(i) for i in incarnations]}
    ).encode()


def decode_incarnations(data: bytes, path: str) -> tuple[bytes, ...]:
    """Raises LogDirectoryError."""
    try:
        return tuple(decode_uuid(each) for each in json.loads(data)["incarnations"])
    except (ValueError, KeyError, TypeError):
        raise LogDirectoryError(
            f"{path} is malformed; restore it, or empty this log directory and let the replicas be "
            "fetched again"
        ) from None
