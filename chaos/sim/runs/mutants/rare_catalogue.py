"""Planted bugs of what hardly anybody does. They show under rare load."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind


def _bug(name: str, path: str, function: str, old: str, new: str) -> Mutant:
    """In a cluster without faults, but on a bad network."""
    edit = Edit(path, function, old, new)
    return Mutant(name, (edit,), kinds=("conditions",), load=LoadKind.RARE)


def _directory_bug(name: str, path: str, function: str, old: str, new: str) -> Mutant:
    """It shows where one of two log directories of a broker dies, and a little else happens."""
    edit = Edit(path, function, old, new)
    return Mutant(name, (edit,), kinds=("kill", "stop"), load=LoadKind.RARE)


RARE: Final = [
    _bug(
        "controller: let a process of an unregistered broker register again",
        "metadata/brokers.py",
        "Brokers.earlier_incarnations",
        "() if gone is None else gone.incarnation_ids",
        "()",
    ),
    _directory_bug(
        "controller: elect a replica whose log directory is offline",
        "controller/partitions.py",
        "Rules.may_lead",
        "self.has_online(broker_id, state.directory_of(broker_id))",
        "",
    ),
    _directory_bug(
        "broker: do not tell that a log directory has failed",
        "broker/replication/reports.py",
        "ReplicaReports.failed_directories",
        "each.offline is not None",
        "False",
    ),
    _directory_bug(
        "broker: make a second log of a replica whose directory is not open",
        "broker/replication/metadata.py",
        "MetadataApplier._apply_replica",
        "self.unopened.takes(partition, change.topic)",
        "",
    ),
    Mutant(
        "quorum: believe what a node of another cluster says of epoch and leader",
        (
            Edit(
                "runtime/quorum/messages.py",
                "decode_response",
                "wire.error == ErrorCode.INCONSISTENT_CLUSTER_ID",
                "False",
            ),
        ),
        kinds=("kill", "cut_all_power", "isolate"),
        load=LoadKind.RARE,
    ),
    _bug(
        "groups: let an instance id lead to who has exchanged it for another",
        "broker/coordinator/group/consumer/state.py",
        "ConsumerGroupState._set_metadata",
        "self._drop_instance(member)",
        "",
    ),
    _bug(
        "raft: name the successor of a handover last",
        "raft/replica.py",
        "RaftReplica.become_resigned",
        "item[0] != preferred",
        "item[0] == preferred",
    ),
    _bug(
        "controller: give an internal topic more partitions",
        "controller/partition_counts.py",
        "_grow",
        "check_stays(wish.name, 'get more partitions')",
        "",
    ),
    _bug(
        "controller: delete internal topics",
        "controller/topics.py",
        "_delete_named",
        "check_stays(name, 'be deleted')",
        "",
    ),
    _bug(
        "leader: send consumers to the replica that has least",
        "broker/partition/followers.py",
        "Followers.preferred",
        "max",
        "min",
    ),
    _bug(
        "migration: let go of what members of the classic protocol have",
        "broker/coordinator/group/consumer/migration.py",
        "_upgraded",
        "CurrentAssignment(epoch, epoch, assigned=partitions)",
        "CurrentAssignment(epoch, epoch)",
    ),
    _bug(
        "migration: take heartbeats of earlier generations",
        "broker/coordinator/group/consumer/classic_members.py",
        "_check_generation",
        "generation != member.current.member_epoch",
        "False",
    ),
    _bug(
        "migration: never tell members of the classic protocol to join again",
        "broker/coordinator/group/consumer/classic_members.py",
        "heartbeat",
        "_has_to_join(group, member, now)",
        "False",
    ),
    Mutant(
        "coordinators: let a deadline stay due that fits into no batch",
        (
            Edit(
                "broker/coordinator/shard.py",
                "Shard._due_step",
                "step.instead is not None",
                "False",
            ),
            Edit(
                "broker/coordinator/shard.py",
                "Shard._tick",
                "continue",
                "self._tick_not_before_ms = now.monotonic_ms + RETRY_MS; break",
            ),
            Edit(
                "broker/coordinator/group/machine.py",
                "GroupMachine.put_off",
                "timer.set(until_ms)",
                "pass",
            ),
        ),
        kinds=("conditions",),
        load=LoadKind.RARE,
    ),
]
