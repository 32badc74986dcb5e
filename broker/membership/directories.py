"""The log directories of one broker, open or not (KIP-858).

A directory that cannot be opened costs its own replicas only, as one that fails later does. The
others are used meanwhile. A directory of another node or cluster, or one in use, is no broken disk
but a wrong configuration: then the node does not start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from broker.membership.identity import DirectoryHistory
from metadata.directories import is_reserved
from runtime.config.node import NodeConfig
from runtime.orderly_end import OrderlyEnd
from stele.ids import decode_uuid
from storage.checkpoints import META_PROPERTIES_FILE
from storage.directory import LogDirectory
from storage.errors import LogDirectoryError, UnusableDirectoryError
from world.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unopened:
    """A directory that cannot be used before it is repaired and the broker is restarted."""

    path: str
    directory_id: bytes | None  # None: it cannot be read
    reason: str


class BrokerDirectories:
    """Life: ``claim``, ``load``; then the replica manager closes them. ``abandon`` undoes both."""

    def __init__(self, config: NodeConfig, world: World, cluster_id: str) -> None:
        self._config = config
        self._world = world
        self._cluster_id = cluster_id
        self.opened: list[LogDirectory] = []
        self.unopened: list[Unopened] = []
        self.are_marked = False
        """Whether the id of this process is on disk in all that are open."""

    def claim(self) -> None:
        """Lock them. Raises LogDirectoryError: none can be used, or the configuration is wrong."""
        for path in self._config.log_dirs:
            try:
                directory = LogDirectory.claim(
                    self._world.disk,
                    path,
                    self._world.clock,
                    cluster_id=self._cluster_id,
                    node_id=self._config.node_id,
                )
            except UnusableDirectoryError as error:
                self._leave_out(path, None, error)
            else:
                self.opened.append(directory)
        self._check_ids()
        self._check_any()

    def _check_ids(self) -> None:
        """Raises LogDirectoryError."""
        paths: dict[bytes, str] = {}
        for each in self.opened:
            directory_id = _id_of(each)
            other = paths.setdefault(directory_id, each.path)
            if other != each.path:
                raise LogDirectoryError(
                    f"{other} and {each.path} have the same directory.id, so one is a copy of the"
                    " other: take it out of log.dirs, or empty it and format it again"
                )

    async def load(self, incarnation_id: bytes) -> None:
        """Open the logs in them, and leave the id of this process in each.

        Raises LogDirectoryError: none of them can be used.
        """
        marked = []
        for directory in list(self.opened):
            try:
                await directory.load()
                marked.append(await self._mark(directory, incarnation_id))
            except LogDirectoryError as error:
                self._leave_out(directory.path, _id_of(directory), error)
                self.opened.remove(directory)
                await directory.abandon()
        self._check_any()
        self.are_marked = all(marked)

    async def _mark(self, directory: LogDirectory, incarnation_id: bytes) -> bool:
        """False: there is no room for the id. Raises LogDirectoryError."""
        try:
            return await directory.incarnations.begin(incarnation_id)
        except OSError as error:
            raise LogDirectoryError(f"{directory.path} cannot be written: {error}") from error

    def _leave_out(self, path: str, directory_id: bytes | None, error: LogDirectoryError) -> None:
        """Raises the error if the directory also has the metadata log: the node needs that."""
        if path == self._config.metadata_log_dir:
            raise error
        logger.error(
            "the log directory %s is offline, and so are the replicas in it, until it is repaired "
            "and this broker is restarted: %s",
            path,
            error,
        )
        self.unopened.append(Unopened(path, directory_id, str(error)))

    def _check_any(self) -> None:
        if not self.opened:
            reasons = "; ".join(each.reason for each in self.unopened)
            raise LogDirectoryError(f"no directory of log.dirs can be used: {reasons}")

    def histories(self) -> tuple[DirectoryHistory, ...]:
        """The earlier processes that each open directory knows (``storage.incarnations``)."""
        return tuple(
            DirectoryHistory(_id_of(each), each.previous_broker_epoch, each.incarnations.earlier)
            for each in self.opened
        )

    async def forget_earlier(self, incarnation_id: bytes) -> None:
        """This process is the one that registered last. As long as the disks do not say so, they
        name the processes before it, too, which does no harm."""
        for directory in self.opened:
            try:
                await directory.incarnations.registered(incarnation_id)
            except OSError as error:
                logger.error("%s: %s", directory.path, error)

    async def abandon(self) -> None:
        """Release them after a start that failed. They stay as clean as they were."""
        end = OrderlyEnd()
        for directory in self.opened:
            end.push(directory.abandon)
        await end.run()


def _id_of(directory: LogDirectory) -> bytes:
    """Raises LogDirectoryError: it cannot be a directory's."""
    text = directory.properties.directory_id
    try:
        directory_id = decode_uuid(text)
    except ValueError as error:
        reason = str(error)
    else:
        if not is_reserved(directory_id):
            return directory_id
        reason = f"{text} is reserved"
    raise LogDirectoryError(
        f"{directory.path}/{META_PROPERTIES_FILE}: directory.id: {reason}; restore the file"
    )
