"""The generated mutants: every small change of the rooms that decide what is safe."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tests.mutation.sites import changed, sites

ROOT = Path(__file__).parents[2]
_EQUIVALENT = Path(__file__).with_name("equivalent.txt")


@dataclass(frozen=True, slots=True)
class Room:
    """Pure code, and the tests that are to notice every change of it."""

    name: str
    sources: tuple[str, ...]  # patterns below ROOT
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()  # patterns, too: another room has these, or nothing decides here
    counting: tuple[str, ...] = ()
    """Tests that count calls, by how their ids begin. They are left out: a probe is a call, too."""

    @property
    def paths(self) -> list[str]:
        """Of its source files, below ROOT."""
        left_out = {file for pattern in self.without for file in ROOT.glob(pattern)}
        found = (file for pattern in self.sources for file in sorted(ROOT.glob(pattern)))
        return [str(file.relative_to(ROOT)) for file in found if file not in left_out]


_PRODUCERS_AND_RECOVERY = tuple(
    f"storage/{noun}.py"
    for noun in (
        "producer_admission",
        "producer_state",
        "producer_recovery",
        "transactions",
        "txn_index",
        "leader_epochs",
        "recovery",
    )
)

ROOMS = (
    Room(
        "partition",
        ("broker/partition/*.py",),
        (
            "tests/broker/partition",
            "tests/broker/replication/test_deletion.py",
            "tests/broker/replication/test_partition_and_controller.py",
        ),
    ),
    Room("share", ("broker/share/*.py",), ("tests/broker/share",)),
    Room("sharing", ("broker/sharing/*.py",), ("tests/broker/sharing",)),
    Room(
        "share_states",
        ("broker/coordinator/share/*.py", "broker/coordinator/share*.py"),
        ("tests/broker/coordinator/share", "tests/broker/coordinator/test_share_states.py"),
    ),
    Room(
        "share_groups",
        ("broker/coordinator/group/share/*.py",),
        ("tests/broker/coordinator/group/share",),
    ),
    Room(
        "sessions",
        ("broker/replication/fetch_session.py",),
        ("tests/broker/replication/test_fetch_session.py",),
    ),
    Room("raft", ("raft/*.py",), ("tests/raft",)),
    Room(
        "controller",
        tuple(
            f"controller/{noun}.py" for noun in ("isr", "partitions", "elections", "reassignment")
        ),
        ("tests/controller", "tests/broker/replication/test_partition_and_controller.py"),
    ),
    Room("storage", _PRODUCERS_AND_RECOVERY, ("tests/storage",)),
    Room("log", ("storage/*.py",), ("tests/storage",), _PRODUCERS_AND_RECOVERY),
    Room(
        "replication",
        ("broker/replication/*.py",),
        ("tests/broker/replication",),
        ("broker/replication/fetch_session.py",),
    ),
    Room(
        "consumer", ("stele/consumer/*.py", "stele/consumer/group/*.py"), ("tests/stele/consumer",)
    ),
    Room("producer", ("stele/producer/*.py",), ("tests/stele/producer",)),
    Room(
        "service",
        ("broker/service/*.py",),
        ("tests/broker/service", "tests/broker/api", "tests/broker/grpc"),
        counting=(
            "tests/broker/api/test_hostile_clients.py",
            "tests/broker/grpc/test_grpc_turns.py",
        ),
    ),
    Room("gateway", ("broker/gateway/*.py",), ("tests/broker/gateway",)),
    Room(
        "spark",  # without what only whole queries show
        tuple(
            f"stele/spark/{noun}.py"
            for noun in (
                "client_settings",
                "decisions",
                "filters",
                "ledger_copy",
                "numbers",
                "offsets",
                "options",
                "partition_json",
                "rows",
                "stream_offsets",
            )
        ),
        ("tests/stele/spark",),
    ),
    Room("membership", ("broker/membership/*.py",), ("tests/broker/membership",)),
    Room(
        "groups",
        tuple(f"broker/coordinator/group/{kind}*.py" for kind in ("", "classic/", "consumer/")),
        ("tests/broker/coordinator/group",),
    ),
    Room(
        "coordinator",
        tuple(f"broker/coordinator/{noun}.py" for noun in ("shard", "runtime", "deadlines")),
        (
            "tests/broker/coordinator/test_deadlines.py",
            "tests/broker/coordinator/test_shard.py",
            "tests/broker/coordinator/test_shard_life.py",
            "tests/broker/coordinator/test_shard_transactions.py",
            "tests/broker/coordinator/test_runtime.py",
            "tests/broker/coordinator/test_runtime_requests.py",
        ),
    ),
    Room(
        "driver",
        tuple(
            f"broker/coordinator/{noun}.py" for noun in ("markers", "verification", "node_requests")
        ),
        (
            "tests/broker/coordinator/test_markers.py",
            "tests/broker/coordinator/test_verification.py",
            "tests/broker/coordinator/test_node_requests.py",
        ),
    ),
    Room("compaction", ("storage/compaction/*.py",), ("tests/storage/compaction",)),
    Room(
        "transaction",
        ("broker/coordinator/transaction/*.py",),
        ("tests/broker/coordinator/transaction",),
    ),
    Room(
        "identity",
        (
            *(
                f"security/{noun}.py"
                for noun in ("distinguished_name", "principal", "node_identity", "renewal")
            ),
            "runtime/authorization/node_identity.py",
            "runtime/authorization/nodes.py",
        ),
        (
            "tests/security/test_distinguished_name.py",
            "tests/security/test_principal.py",
            "tests/security/test_node_identity.py",
            "tests/security/test_renewal.py",
            "tests/runtime/test_node_identity.py",
            "tests/runtime/test_for_nodes.py",
        ),
    ),
    Room(
        "audit",
        ("security/audit.py", "security/authority.py", "stele/security/jaas.py"),
        (
            "tests/security/test_audit.py",
            "tests/security/test_authority.py",
            "tests/stele/security/test_jaas.py",
        ),
    ),
    Room(
        "logins",
        ("runtime/logins/grpc.py", "runtime/logins/tokens.py"),
        ("tests/runtime/test_grpc_logins.py", "tests/runtime/test_token_verifier.py"),
    ),
    Room(
        "doctor",
        (
            "node/peers_doctor.py",
            "node/cluster_doctor.py",
            "node/doctor.py",
            "node/findings.py",
            "security/audit_report.py",
            "stele/cluster/misfit.py",
        ),
        (
            "tests/node/test_peers_doctor.py",
            "tests/node/test_doctor.py",
            "tests/security/test_audit_report.py",
            "tests/stele/cluster/test_refusals.py",
        ),
    ),
    Room("first_users", ("node/first_users.py",), ("tests/node/test_first_users.py",)),
    Room(
        "authorizer",
        ("security/authorizer/*.py", "metadata/acl.py", "metadata/acls.py"),
        ("tests/security/authorizer", "tests/metadata/test_acls.py"),
    ),
    Room(
        "quota",
        ("runtime/quota/*.py", "metadata/client_quotas.py", "controller/client_quotas.py"),
        (
            "tests/runtime/quota",
            "tests/metadata/test_client_quotas.py",
            "tests/controller/test_client_quotas.py",
        ),
    ),
    Room(
        "tenants",
        ("controller/mutation_quotas.py", "runtime/kafka/turns.py"),
        (
            "tests/controller/test_mutation_quotas.py",
            "tests/runtime/kafka/test_turns.py",
            "tests/runtime/kafka/test_muted_connection.py",
        ),
    ),
    Room(
        "telemetry",
        ("broker/telemetry/*.py", "metadata/client_metrics.py"),
        ("tests/broker/telemetry", "tests/metadata/test_client_metrics.py"),
    ),
    Room(
        "connections",
        ("broker/connections/*.py", "metadata/connection_settings.py"),
        ("tests/broker/connections",),
    ),
    Room(
        "token",
        (
            "security/delegation_tokens.py",
            "metadata/delegation_tokens.py",
            "controller/delegation_tokens.py",
            "controller/token_expiry.py",
        ),
        (
            "tests/security/sasl/test_token_logins.py",
            "tests/metadata/test_delegation_tokens.py",
            "tests/controller/test_delegation_tokens.py",
            "tests/controller/test_token_expiry.py",
        ),
    ),
    Room(
        "sasl",
        (
            "security/sasl/*.py",
            "stele/security/scram.py",
            "stele/security/dialogues.py",
            "metadata/scram_credentials.py",
            "controller/scram_credentials.py",
        ),
        (
            "tests/security/sasl",
            "tests/stele/security/test_scram.py",
            "tests/metadata/test_scram_credentials.py",
            "tests/controller/test_scram_credentials.py",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. Its name says where and what, never in which line."""

    room: Room
    path: str
    function: tuple[str, ...]
    change: str
    lines: range

    @property
    def name(self) -> str:
        return f"{self.path}: {'.'.join(self.function)}: {self.change}"

    def compiled(self) -> CodeType:
        """Its module, with the change."""
        tree = ast.parse((ROOT / self.path).read_text())
        site = next(
            site
            for site in sites(tree)
            if (site.function, site.change) == (self.function, self.change)
        )
        return compile(changed(tree, site), str(ROOT / self.path), "exec", dont_inherit=True)


def mutants_of(room: Room) -> list[Mutant]:
    return [
        Mutant(room, path, site.function, site.change, site.lines)
        for path in room.paths
        for site in sites(ast.parse((ROOT / path).read_text()))
    ]


def drawn(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants, and the equivalent ones that stand before the last of these in an order
    that depends only on names: a change of the source moves no other mutant in or out."""
    reasons, left = equivalent(), count
    found: list[Mutant] = []
    for mutant in sorted(mutants, key=lambda one: _lot(one, seed)):
        if left == 0:
            break
        found.append(mutant)
        left -= mutant.name not in reasons
    return found


def _lot(mutant: Mutant, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()


@functools.cache
def digest(path: str) -> str:
    """Of what a source file says, however it is laid out."""
    return hashlib.sha256(ast.dump(ast.parse((ROOT / path).read_text())).encode()).hexdigest()[:16]


def equivalent() -> dict[str, str]:
    """Mutants that do what the source does, by their names: the reason of each."""
    reasons: dict[str, str] = {}
    name = ""
    for line in _EQUIVALENT.read_text().splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            name = line
            reasons[name] = ""
        else:
            reasons[name] = f"{reasons[name]} {line.strip()}".strip()
    return reasons
