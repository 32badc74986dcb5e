"""Making and checking a node's directories: whose cluster's and node's they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.config import NodeConfig
from stele.world import Disk, Rng
from storage.checkpoints import (
    META_PROPERTIES_FILE,
    MetaProperties,
    decode_uuid,
    encode_uuid,
    read_meta_properties,
)
from storage.directory import format_directory as format_log_directory
from storage.directory import read_formatted
from storage.errors import LogDirectoryError


def random_cluster_id(rng: Rng) -> str:
    """A new cluster id, in Kafka's text form of a UUID."""
    return _random_uuid(rng)


def directories_of(config: NodeConfig) -> list[str]:
    """All directories that a node keeps something in, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


def format_directory(
    disk: Disk,
    dirs: Sequence[str],
    cluster_id: str,
    node_id: int,
    rng: Rng,
    *,
    ignore_formatted: bool = False,
) -> list[str]:
    """Write ``meta.properties`` into every directory, durably; return those that were written.

    Nothing is written if any of them belongs to another cluster or node, or is formatted already
    (``ignore_formatted``: those are left as they are). Raises LogDirectoryError.
    """
    fresh = []
    for path in dict.fromkeys(dirs):
        if read_meta_properties(disk, f"{path}/{META_PROPERTIES_FILE}") is None:
            fresh.append(path)
            continue
        read_formatted(disk, path, cluster_id=cluster_id, node_id=node_id)
        if not ignore_formatted:
            raise LogDirectoryError(
                f"{path} is formatted already, for this node and cluster; "
                "use --ignore-formatted to keep it, or empty it to format it again"
            )
    for path in fresh:
        format_log_directory(disk, path, MetaProperties(cluster_id, node_id, _random_uuid(rng)))
    return fresh


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What the directories say about the node."""

    cluster_id: str
    metadata_directory_id: bytes  # 16 bytes


def read_identity(disk: Disk, config: NodeConfig) -> NodeIdentity:
    """Check that all directories are this node's, of one cluster. Raises LogDirectoryError."""
    cluster_id = config.cluster_id or None
    for path in directories_of(config):
        properties = read_formatted(disk, path, cluster_id=cluster_id, node_id=config.node_id)
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


def _random_uuid(rng: Rng) -> str:
    """A random UUID (version 4); never one whose text begins with a dash, as in Kafka."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = encode_uuid(bytes(raw))
        if not text.startswith("-"):
            return text
