"""A node's directories, and what they say about the node.

``node.run`` imports this before the code of a node, so it imports little itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.config.node import NodeConfig
from stele.ids import decode_uuid
from storage.checkpoints import META_PROPERTIES_FILE, MetaProperties
from storage.errors import LogDirectoryError, UnusableDirectoryError
from storage.formatted import read_formatted
from world.disk import Disk


def directories_of(config: NodeConfig) -> list[str]:
    """All directories that a node keeps something in, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What the directories say about the node."""

    cluster_id: str
    metadata_directory_id: bytes  # 16 bytes


def read_identity(disk: Disk, config: NodeConfig) -> NodeIdentity:
    """Check that all directories are this node's, of one cluster. A broker can do without some of
    its log directories. Raises LogDirectoryError."""
    cluster_id = config.cluster_id or None
    for path in directories_of(config):
        try:
            properties = read_formatted(disk, path, cluster_id=cluster_id, node_id=config.node_id)
        except UnusableDirectoryError:
            if path == config.metadata_log_dir or not config.is_broker:
                raise
            continue
        cluster_id = properties.cluster_id
        if path == config.metadata_log_dir:
            directory_id = _directory_id(path, properties)
    assert cluster_id is not None  # the metadata directory is always among them
    return NodeIdentity(cluster_id, directory_id)


def _directory_id(path: str, properties: MetaProperties) -> bytes:
    try:
        return decode_uuid(properties.directory_id)
    except ValueError as error:
        raise LogDirectoryError(
            f"{path}/{META_PROPERTIES_FILE}: directory.id: {error}; restore the file"
        ) from None
