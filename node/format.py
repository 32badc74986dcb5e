"""Formats a node's directories: which cluster and node they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from node.first_users import FirstUsers
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from runtime.config.addresses import endpoint_text, parse_endpoint
from runtime.config.node import ConfigError, NodeConfig
from runtime.quorum.snapshots import BOOTSTRAP, file_name
from runtime.quorum.snapshots import encode as encode_snapshot
from stele.ids import decode_uuid, encode_uuid
from stele.world import Rng
from storage.checkpoints import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
)
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC
from storage.errors import LogDirectoryError
from storage.formatted import format_directory as format_log_directory
from storage.formatted import read_formatted
from world.disk import Disk


def random_cluster_id(rng: Rng) -> str:
    """A new cluster id, in Kafka's text form of a UUID."""
    return random_directory_id(rng)


def random_directory_id(rng: Rng) -> str:
    """A random UUID (version 4); never one whose text begins with a dash, as in Kafka."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = encode_uuid(bytes(raw))
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True)
class FirstVoters:
    """The first voters of a new quorum, as one node's metadata directory is formatted with."""

    metadata_directory: str
    directory_id: str  # of that directory
    voters: VoterSet

    @classmethod
    def standalone(cls, config: NodeConfig, rng: Rng) -> FirstVoters:
        """This controller as the only voter. Raises ConfigError if the node is no controller."""
        endpoint = _own_endpoint(config)
        directory_id = random_directory_id(rng)
        key = ReplicaKey(config.node_id, decode_uuid(directory_id))
        return cls(config.metadata_log_dir, directory_id, VoterSet([Voter(key, endpoint)]))

    @classmethod
    def of(cls, config: NodeConfig, controllers: str, rng: Rng) -> FirstVoters:
        """``controllers``: id@host:port[:directory id],… with this one among them; without its
        directory id one is made up. The other nodes' ids are learned. Raises ConfigError."""
        _own_endpoint(config)
        found = [_initial_controller(item.strip()) for item in controllers.split(",")]
        voters = VoterSet(found)
        if len(voters) != len(found):
            raise ConfigError("--initial-controllers names a controller twice")
        own = voters.get(config.node_id)
        if own is None:
            raise ConfigError(
                f"node {config.node_id} is not among --initial-controllers; a controller that "
                "joins later is formatted with --no-initial-controllers"
            )
        known = own.key.directory_id != NO_DIRECTORY
        directory_id = encode_uuid(own.key.directory_id) if known else random_directory_id(rng)
        key = ReplicaKey(own.id, decode_uuid(directory_id))
        return cls(
            config.metadata_log_dir, directory_id, voters.with_voter(Voter(key, own.endpoint))
        )

    def write(self, disk: Disk, cluster_id: str) -> None:
        """Into the metadata directory, durably, as the snapshot of an empty log."""
        directory = f"{self.metadata_directory}/{METADATA_TOPIC}-{METADATA_PARTITION}"
        disk.make_directory(directory)
        content = b"".join(encode_snapshot(BOOTSTRAP, cluster_id, 0, (), self.voters))
        disk.replace_file_now(f"{directory}/{file_name(BOOTSTRAP)}", content)
        disk.sync_now(self.metadata_directory)


def _own_endpoint(config: NodeConfig) -> str:
    if not config.controller_advertised_listeners:
        raise ConfigError(f"node {config.node_id} is no controller: it begins no quorum")
    return endpoint_text(config.controller_advertised_listeners)


def _initial_controller(item: str) -> Voter:
    node_id, at, rest = item.partition("@")
    listeners, directory_id = parse_endpoint(rest), NO_DIRECTORY
    if listeners is None:
        rest, _, text = rest.rpartition(":")
        listeners = parse_endpoint(rest)
        try:
            directory_id = decode_uuid(text)
        except ValueError:
            listeners = None
    if not (at and node_id.isdecimal() and listeners and all(each.host for each in listeners)):
        raise ConfigError(f"--initial-controllers: {item!r} is not id@host:port[:directory id]")
    return Voter(ReplicaKey(int(node_id), directory_id), endpoint_text(listeners))


def format_directory(
    disk: Disk,
    dirs: Sequence[str],
    cluster_id: str,
    node_id: int,
    rng: Rng,
    *,
    ignore_formatted: bool = False,
    first: FirstVoters | None = None,
    users: FirstUsers | None = None,
) -> list[str]:
    """Write ``meta.properties`` into every directory, durably; return those that were written.

    With ``first``, write the first voters of the quorum, too, and with ``users`` the first users.
    Nothing is written if any of the
    directories belongs to another cluster or node, or is formatted already (``ignore_formatted``:
    those are left as they are). Raises LogDirectoryError.
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
        begins = first is not None and path == first.metadata_directory
        directory_id = first.directory_id if first and begins else random_directory_id(rng)
        beginning = [each for each in (first, users) if each and each.metadata_directory == path]
        properties = MetaProperties(cluster_id, node_id, directory_id)
        format_log_directory(
            disk, path, properties, before=partial(_write_all, beginning, disk, cluster_id)
        )
    return fresh


def _write_all(beginning: Sequence[FirstVoters | FirstUsers], disk: Disk, cluster_id: str) -> None:
    for each in beginning:
        each.write(disk, cluster_id)
