"""Reports to the controller in which log directory each replica of this broker is (KIP-858).

The metadata are compared with the directories in use whenever either changes. Differences are
reported, one request at a time, until the metadata agree. A late copy of an earlier request may
change the metadata again, which is another difference.

While a replica moves, it is in the old directory until its copy is marked on disk as the log.

A broker with one directory reports nothing, unless the metadata name another directory: see
``metadata.directories``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from metadata.directories import REPLICA_DIRECTORIES, UNASSIGNED
from metadata.features import metadata_version
from runtime.backoff import node_backoff
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, decode_uuid
from stele.wire.v1.controller_pb2 import (
    AssignReplicasToDirectoriesRequest,
    AssignReplicasToDirectoriesResponse,
    PartitionReference,
)
from stele.world import RpcError
from storage.directory import LogDirectory

logger = logging.getLogger(__name__)

AssignReplicas = Callable[
    [AssignReplicasToDirectoriesRequest], Awaitable[AssignReplicasToDirectoriesResponse]
]

REPLICAS_PER_REQUEST: Final = 2000
"""A decision takes one turn of the controller's event loop."""


class DirectoryAssignments:
    """The directories of this broker's replicas, as the controller is to know them."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        directory_count: int,
        assign_replicas: AssignReplicas,
        broker_epoch: Callable[[], int],
    ) -> None:
        """``directory_count``: of the configuration, whether they work or not."""
        self._replicas = replicas
        self._tells_new = directory_count > 1
        self._assign_replicas = assign_replicas
        self._broker_epoch = broker_epoch
        self._was_enabled = False
        # The replicas of the next request.
        self._waiting: dict[PartitionId, Replica] = {}
        # One request is under way exactly while this is set.
        self._task: asyncio.Task[None] | None = None
        self._told: dict[PartitionId, asyncio.Event] = {}  # of those that somebody waits for
        self._is_stopped = False

    @property
    def _is_enabled(self) -> bool:
        return metadata_version(self._replicas.metadata.image) >= REPLICA_DIRECTORIES

    def of(self, partition: PartitionId) -> bytes:
        """The directory in which the metadata have this broker's replica; UNASSIGNED: none."""
        state = self._replicas.metadata.image.partition(*partition)
        if state is None or not self._is_enabled:
            return UNASSIGNED
        return state.directory_of(self._replicas.broker_id)

    def look(self, replica: Replica) -> None:
        """The replica's directory, or what the metadata say of it, may have changed."""
        if self._is_right(replica):
            self._waiting.pop(replica.id, None)
            if (told := self._told.get(replica.id)) is not None:
                told.set()
        elif not self._is_stopped:
            self._waiting[replica.id] = replica
            if self._task is None:
                self._task = asyncio.create_task(self._tell_all(), name="directory-assignments")

    def to_look_at_again(self) -> Iterable[Replica]:
        """Every replica, after the change of the metadata that lets brokers tell directories."""
        was_enabled, self._was_enabled = self._was_enabled, self._is_enabled
        return list(self._replicas) if self._was_enabled and not was_enabled else ()

    def _is_right(self, replica: Replica) -> bool:
        """Whether there is nothing to tell of it."""
        if replica.state is ReplicaState.REMOVED or not self._is_enabled:
            return True
        known = self.of(replica.id)
        if known == UNASSIGNED and not self._tells_new:
            return True
        return known == id_of(replica.settled_directory)

    async def told(self, replica: Replica) -> bool:
        """Return when the metadata say in which directory the replica is. False: it was not told
        before the end of this broker."""
        while not self._is_right(replica):
            if self._is_stopped:
                return False
            self.look(replica)
            event = self._told.setdefault(replica.id, asyncio.Event())
            try:
                await event.wait()
            finally:
                self._told.pop(replica.id, None)
        return True

    async def stop(self) -> None:
        """Report nothing more, and wake all that wait for a report."""
        self._is_stopped = True
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for told in self._told.values():
            told.set()

    # ------------------------------------------------------------------------- requests

    async def _tell_all(self) -> None:
        backoff = node_backoff()
        try:
            while batch := self._take():
                if await self._tell(batch):
                    backoff.reset()
                    continue
                for replica in batch:
                    self._waiting.setdefault(replica.id, replica)
                await asyncio.sleep(backoff.next_s())
        finally:
            self._task = None

    def _take(self) -> list[Replica]:
        """The next replicas to report."""
        while self._waiting:
            taken = list(itertools.islice(self._waiting.values(), REPLICAS_PER_REQUEST))
            for replica in taken:
                del self._waiting[replica.id]
            if wrong := [each for each in taken if not self._is_right(each)]:
                return wrong
        return []

    async def _tell(self, batch: list[Replica]) -> bool:
        """One request. False: it has to be sent again."""
        try:
            response = await self._assign_replicas(self._request(batch))
        except (RpcError, ApiError) as error:
            logger.warning("the directories of %d replicas are not told: %s", len(batch), error)
            return False
        if response.error != ErrorCode.NONE:
            logger.warning(
                "the directories of %d replicas are not told: %s %s",
                len(batch),
                ErrorCode(response.error).name,
                response.message,
            )
            return False
        for refusal in response.refusals:  # the metadata that say so are on their way
            logger.info("a directory is not told: %s", refusal.message)
        return True

    def _request(self, batch: list[Replica]) -> AssignReplicasToDirectoriesRequest:
        by_directory: dict[bytes, list[PartitionReference]] = {}
        for replica in batch:
            by_directory.setdefault(id_of(replica.settled_directory), []).append(
                PartitionReference(topic_id=replica.id.topic_id, partition=replica.id.partition)
            )
        return AssignReplicasToDirectoriesRequest(
            broker_id=self._replicas.broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirectoriesRequest.Directory(
                    directory_id=directory_id, replicas=replicas
                )
                for directory_id, replicas in by_directory.items()
            ],
        )


def id_of(directory: LogDirectory) -> bytes:
    """The directory's id in the metadata."""
    return decode_uuid(directory.properties.directory_id)
