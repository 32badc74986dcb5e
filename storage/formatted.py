"""Formatting of log directories, and the check of their owner."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from storage.checkpoints import META_PROPERTIES_FILE, MetaProperties, read_meta_properties
from storage.errors import LogDirectoryError, UnusableDirectoryError, words_of
from world.disk import Disk

LOCK_FILE: Final = ".lock"


def format_directory(
    disk: Disk,
    path: str,
    properties: MetaProperties,
    *,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Make ``path`` a log directory of a cluster and node, durably.

    ``before`` is called before that, if the directory is empty. It writes what every formatted
    directory must have. Raises LogDirectoryError if the directory is formatted already or has other
    content.
    """
    disk.make_directory(path)
    present = read_meta_properties(disk, f"{path}/{META_PROPERTIES_FILE}")
    if present is not None:
        raise LogDirectoryError(
            f"{path} is formatted already, for node {present.node_id} of cluster "
            f"{present.cluster_id}; empty it to format it again"
        )
    foreign = [name for name in disk.list(path) if name not in (LOCK_FILE, "lost+found")]
    if foreign:
        raise LogDirectoryError(
            f"{path} is not empty ({foreign[0]}) and no log directory; choose another"
        )
    before()
    disk.replace_file_now(f"{path}/{META_PROPERTIES_FILE}", properties.encode())
    disk.sync_now(path.rpartition("/")[0] or "/")


def make_within(disk: Disk, path: str, directory: str) -> None:
    """Make a log's directory within the log directory ``path``, which must be there. If it was
    removed or is not mounted any more, it must not come back empty: the records would go to another
    disk, and the next start would not find them. Raises OSError."""
    if not disk.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    disk.make_directory(directory)


def read_formatted(
    disk: Disk, path: str, *, cluster_id: str | None = None, node_id: int | None = None
) -> MetaProperties:
    """The owner of a directory. Raises LogDirectoryError unless it is formatted for this cluster
    and this node (None: for any), and UnusableDirectoryError if the owner cannot be read."""
    try:
        properties = read_meta_properties(disk, f"{path}/{META_PROPERTIES_FILE}")
    except OSError as error:
        raise UnusableDirectoryError(f"{path} cannot be read: {words_of(error)}") from error
    if properties is None:
        raise UnusableDirectoryError(
            f"{path} is not formatted; run `stele format` with this node's configuration first"
        )
    if cluster_id is not None and properties.cluster_id != cluster_id:
        raise LogDirectoryError(
            f"{path} belongs to cluster {properties.cluster_id}, this node to {cluster_id}; "
            "set log.dirs to this cluster's directory, or empty it and format it again"
        )
    if node_id is not None and properties.node_id != node_id:
        raise LogDirectoryError(
            f"{path} belongs to node {properties.node_id}, this is node {node_id}; "
            "correct node.id or log.dirs"
        )
    return properties
