"""Slow disks: the kernel lets a node write only so many times a second (cgroup v1, blkio).

A sync waits for its writes, so a node with five writes a second needs a fifth of a second or more
for each sync. Reading is as fast as before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from stele.errors import SteleError

_BLKIO: Final = Path("/sys/fs/cgroup/blkio")
_LIMIT: Final = "blkio.throttle.write_iops_device"
_NO_LIMIT: Final = 0


def unavailable() -> str | None:
    """Why no disk can be made slow here, or None."""
    if os.geteuid() != 0 or not (_BLKIO / _LIMIT).exists():
        return "a disk is made slow by the blkio controller of cgroups v1, which needs root"
    return None


class SlowDisks:
    """Control groups, each for the processes of one node. ``close`` removes those that it made."""

    def __init__(self, directory: Path) -> None:
        """``directory``: on the disk of the nodes."""
        self._device = _whole_device(directory)
        self._made: list[Path] = []

    def group_for(self, name: str, process_ids: Iterable[int]) -> Path:
        """A group of these processes. Processes that they start later are in it, too."""
        group = _BLKIO / f"stele-drill-{os.getpid()}-{name}"
        if group not in self._made:
            group.mkdir()
            self._made.append(group)
        for process_id in process_ids:
            (group / "cgroup.procs").write_text(str(process_id))
        return group

    def limit(self, group: Path, writes_per_s: int) -> None:
        (group / _LIMIT).write_text(f"{self._device} {writes_per_s}")

    def release(self, group: Path) -> None:
        (group / _LIMIT).write_text(f"{self._device} {_NO_LIMIT}")

    def close(self) -> None:
        """Its processes have ended, or end now."""
        made, self._made = self._made, []
        for group in made:
            for process_id in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has ended meanwhile
                    (_BLKIO / "cgroup.procs").write_text(process_id)
            group.rmdir()


def group_of_container(container_id: str) -> Path:
    """The group that a Docker engine has made for a container. Raises SteleError."""
    group = _BLKIO / "docker" / container_id
    if not group.is_dir():
        raise SteleError(f"container {container_id[:12]} has no control group of blkio")
    return group


def process_tree(root: int) -> list[int]:
    """A process and all that it and its children have started, such as a node's helpers."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(after_name[1]), []).append(int(entry.name))
    found = [root]
    for each in found:
        found += children.get(each, ())
    return found


def _whole_device(path: Path) -> str:
    """Major and minor number of the disk, not of a partition of it, since limits are of disks."""
    device = path.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    place = Path("/sys/dev/block") / name
    if (place / "partition").exists():
        return (place.resolve().parent / "dev").read_text().strip()
    return name
