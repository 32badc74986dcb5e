"""The lost and the offline replicas of a broker, by its registration (KIP-858, KIP-966).

A registration names the open log directories and the replicas in each. A directory of the last
registration that is missing is gone, unless some directories could not be opened: then it may be
one of those, and is offline. The replicas of a gone directory are lost. Those of an offline
directory come back with it.
"""

from __future__ import annotations

import logging

from controller.partitions import NOBODY
from metadata.brokers import BrokerRegistration, DirectoryUse
from metadata.directories import LOST, is_reserved
from metadata.partitions import PartitionState
from stele.ids import PartitionId, encode_uuid
from stele.wire.v1.controller_pb2 import PartitionReference, RegisterBrokerRequest

logger = logging.getLogger(__name__)


class Losses:
    """The broker's replicas by one registration."""

    def __init__(self, existing: BrokerRegistration | None, request: RegisterBrokerRequest) -> None:
        self._broker_id = request.broker_id
        self._reported = _keys(*request.corrupt, *request.unsynced)
        self.offline_directories: tuple[bytes, ...] = ()
        """Directories of earlier registrations, which may be among the unopened directories."""
        self.last_uses: tuple[DirectoryUse, ...] = ()
        """The last uses of the offline directories."""
        # The directories of earlier registrations that are open, and the replicas with a sound log
        # in them. None: no directory is missing.
        self._kept: frozenset[bytes] | None = None
        self._held: set[PartitionId] = set()
        self._some_directory_is_gone = False
        if existing is not None and existing.incarnation_id != request.incarnation_id:
            self._look_at_directories(existing, request)

    def _look_at_directories(
        self, existing: BrokerRegistration, request: RegisterBrokerRequest
    ) -> None:
        older = _older_directories(existing, request)
        known = {*existing.log_directories, *existing.offline_directories}
        kept = known & {*request.log_directories} - older
        missing = known - {*request.log_directories}
        if request.unopened_directories:
            self.offline_directories = tuple(sorted(missing))
            uses = (existing.last_use(each) for each in self.offline_directories)
            self.last_uses = tuple(use for use in uses if use is not None)
        self._some_directory_is_gone = bool(older) or (
            bool(missing) and not request.unopened_directories
        )
        if len(kept) < len(known) or _is_older(existing, request):
            self._some_directory_is_gone |= _is_older(existing, request)
            histories = [each for each in request.directory_histories if each.directory_id in kept]
            self._kept = frozenset(kept)
            self._held = _keys(*(replica for each in histories for replica in each.replicas))

    def lossy(self, key: PartitionId, state: PartitionState) -> frozenset[int]:
        """The broker, if its replica of the partition has lost records."""
        lost = key in self._reported or (
            self._some_directory_is_gone
            and not self._is_kept(key, state)
            and not self._may_come_back(state)
        )
        return frozenset({self._broker_id}) if lost else NOBODY

    def _may_come_back(self, state: PartitionState) -> bool:
        """Whether the replica is in a directory that is offline. While there is none, nobody waits
        for a replica whose directory is not known."""
        offline = self.offline_directories
        return bool(offline) and state.directory_of(self._broker_id) in (LOST, *offline)

    def directories(self, key: PartitionId, state: PartitionState) -> tuple[bytes, ...]:
        """The directories of the partition's replicas after the registration.

        A replica that others rely on, and that is in no directory that is open, is in one that is
        offline. A replica that is reported as broken was found in a directory that is open.

        A replica without a log in the open directory that the metadata name may be in an offline
        one, too. Example: a replica has moved from A to B, and a late copy of an earlier request
        names A again. The broker crashes, and then B cannot be opened. If this replica counted as
        usable, it would lead with an empty log.
        """
        if (
            self.offline_directories
            and key not in self._reported
            and self._broker_id in (*state.isr, *state.elr)
            and not self._is_kept(key, state)
            and state.directory_of(self._broker_id) not in self.offline_directories
        ):
            return state.directories_with(self._broker_id, LOST)
        return state.directories

    def _is_kept(self, key: PartitionId, state: PartitionState) -> bool:
        """Whether the replica is in a directory that is open, as before.

        The log must be there, and nothing must say that a newer one is elsewhere: a replica that
        was moved may have left an older log behind.
        """
        if self._kept is None:
            return True
        told = state.directory_of(self._broker_id)
        return key in self._held and (is_reserved(told) or told in self._kept)


def _keys(*references: PartitionReference) -> set[PartitionId]:
    return {PartitionId(each.topic_id, each.partition) for each in references}


def _older_directories(
    existing: BrokerRegistration, request: RegisterBrokerRequest
) -> frozenset[bytes]:
    """The log directories in a state from before the last registration that had them open. They may
    lack any record that was acknowledged since."""
    return frozenset(
        each.directory_id
        for each in request.directory_histories
        if (use := existing.last_use(each.directory_id)) is not None
        and (
            _is_other_epoch(use.broker_epoch, each.previous_broker_epoch)
            or (bool(use.incarnation_id) and use.incarnation_id not in each.incarnation_ids)
        )
    )


def _is_older(existing: BrokerRegistration, request: RegisterBrokerRequest) -> bool:
    """The same of a broker of a version that says nothing of single directories."""
    return not request.directory_histories and _is_other_epoch(
        existing.broker_epoch, request.previous_broker_epoch
    )


def _is_other_epoch(last: int, told: int) -> bool:
    """Whether the last process on a disk is not the one that last shut down cleanly (KIP-966).

    A killed process leaves no epoch. It loses nothing that counts, because acknowledged records are
    on disk. So a missing epoch is no loss here. KIP-966 counts it as one.
    """
    return told > 0 and told != last


def warn_of_older(existing: BrokerRegistration, request: RegisterBrokerRequest) -> None:
    """Say in the log that directories are from before the last registration."""
    older = _older_directories(existing, request)
    if older or _is_older(existing, request):
        logger.error(
            "broker %d comes back with log directories in a state from before its last registration"
            " (%s): the replicas in them count as incomplete. Was a disk restored from a snapshot?",
            request.broker_id,
            ", ".join(encode_uuid(each) for each in sorted(older)) or "all",
        )
