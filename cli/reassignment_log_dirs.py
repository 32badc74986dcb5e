"""The log directories in a plan: whether there are such, and how far the moves to them are."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.output import CommandError
from cli.reassignment_file import LogDirs, Replica

if TYPE_CHECKING:
    from stele.admin.log_dirs import LogDirDescription
    from stele.sync import Admin


class LogDirStatus(enum.StrEnum):
    """The state of one replica's move to the directory that a plan names."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    REDIRECTED = "moving elsewhere"
    AWAITED = "no replica yet"
    ELSEWHERE = "not moving, and elsewhere"
    OFFLINE = "offline"  # the directory: nobody knows what is in it


@dataclass(slots=True)
class Standing:
    """Where a replica is, and where to its copy goes. None: nowhere."""

    path: str | None = None
    future: str | None = None


class Directories:
    """The log directories of the brokers that a plan names, as they are now."""

    def __init__(self, described: Iterable[LogDirDescription]) -> None:
        self._paths: dict[int, dict[str, bool]] = {}  # whether each is offline
        self._standings: dict[Replica, Standing] = {}
        for directory in described:
            self._paths.setdefault(directory.broker_id, {})[directory.path] = directory.is_offline
            for replica in directory.replicas:
                place = (*replica.partition, directory.broker_id)
                standing = self._standings.setdefault(place, Standing())
                if replica.is_future:
                    standing.future = directory.path
                else:
                    standing.path = directory.path

    @classmethod
    def of(cls, admin: Admin, wanted: LogDirs) -> Directories:
        """Raises CommandError if a broker of the plan is not in service."""
        if not wanted:
            return cls(())
        brokers = sorted({broker_id for _, _, broker_id in wanted})
        serving = {each.broker_id for each in admin.describe_cluster().brokers if not each.fenced}
        if missing := [each for each in brokers if each not in serving]:
            raise CommandError(
                f"broker {missing[0]} is not in service: only it knows its log directories"
            )
        names = sorted({(topic, partition) for topic, partition, _ in wanted})
        return cls(admin.describe_log_dirs(brokers, names))

    def check(self, wanted: LogDirs) -> None:
        """Raises CommandError for a directory that its broker does not have, or cannot use."""
        for (topic, partition, broker_id), path in sorted(wanted.items()):
            known = self._paths[broker_id]
            if path not in known:
                raise CommandError(
                    f"{topic}-{partition}: broker {broker_id} has no log directory {path}; it has "
                    f"{', '.join(known)}"
                )
            if known[path]:
                raise CommandError(f"{topic}-{partition}: {path} of broker {broker_id} is offline")

    def standing(self, place: Replica) -> Standing:
        return self._standings.get(place, Standing())

    def present(self, wanted: LogDirs) -> LogDirs:
        """The present directories of these replicas, as in a plan. Missing replicas are left
        out."""
        found: LogDirs = {}
        for place in wanted:
            path = self.standing(place).path
            if path is not None:
                found[place] = path
        return found

    def moving(self, wanted: LogDirs) -> LogDirs:
        """The present directories of those replicas that are being moved."""
        return {
            place: path
            for place, path in self.present(wanted).items()
            if self.standing(place).future is not None
        }

    def status(self, place: Replica, path: str) -> LogDirStatus:
        standing = self.standing(place)
        if standing.future == path:
            return LogDirStatus.IN_PROGRESS
        if standing.future is not None:
            return LogDirStatus.REDIRECTED
        if standing.path == path:
            return LogDirStatus.COMPLETED
        if self._paths[place[2]].get(path):
            return LogDirStatus.OFFLINE
        return LogDirStatus.AWAITED if standing.path is None else LogDirStatus.ELSEWHERE
