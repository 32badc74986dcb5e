"""Planted bugs of transactions: coordinators, markers, verification, logs, and offsets in them."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_ROOM: Final = "broker/coordinator/transaction"
_MACHINE: Final = f"{_ROOM}/machine.py"
_MARKERS: Final = "broker/coordinator/markers.py"
_VERIFICATION: Final = "broker/coordinator/verification.py"
_PARTITION: Final = "broker/partition/view.py"
_PRODUCERS: Final = "storage/producer_state.py"
_LOG: Final = "storage/log_transactions.py"
_OFFSETS: Final = "broker/coordinator/group/offsets.py"


def _bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """``kinds``: of the storm, or aims at transactions. None: all of them."""
    return Mutant(name, (Edit(path, function, old, new),), kinds=kinds, load=LoadKind.LIGHT)


COORDINATORS = [
    _bug(
        "transactions: commit what was to be aborted",
        f"{_ROOM}/ending.py",
        "_prepare",
        "TransactionState.PREPARE_COMMIT if request.commit else TransactionState.PREPARE_ABORT",
        "TransactionState.PREPARE_COMMIT",
        "kill",
    ),
    _bug(
        "transactions: let a producer that was replaced add partitions",
        f"{_ROOM}/adding.py",
        "_check",
        "not is_client(value, asked)",
        "False",
        "kill",
    ),
    _bug(
        "transactions: let a producer that was replaced end the transaction",
        f"{_ROOM}/ending.py",
        "_check",
        "is_client(value, asked)",
        "asked.producer_id == identity_of(value).producer_id",
        "kill",
    ),
    _bug(
        "transactions: begin anew beside what is open",
        f"{_ROOM}/initializing.py",
        "initialize",
        "value.state is TransactionState.ONGOING",
        "False",
        "kill",
    ),
    _bug(
        "transactions: abort a prepared transaction when somebody comes back to it",
        f"{_ROOM}/initializing.py",
        "initialize",
        "if request.keep_prepared:\n    return _keep(value, request, now_ms)",
        "",
        "kill",
    ),
    _bug(
        "transactions: abort prepared transactions in time",
        _MACHINE,
        "TransactionMachine._timeout_ms",
        "most_ms if most_ms >= 0 else None",
        "1000",
        "kill",
    ),
    _bug(
        "transactions: never abort in time",
        _MACHINE,
        "TransactionMachine._timeout_ms",
        "value.timeout_ms != NO_TIMEOUT_MS",
        "False",
        "kill",
    ),
    _bug(
        "transactions: abort in time and keep the epoch",
        f"{_ROOM}/decision.py",
        "abort",
        "value.producer_epoch + 1",
        "value.producer_epoch",
        "kill",
    ),
    _bug(
        "transactions: forget with the coordinator what is decided and not marked",
        _MACHINE,
        "TransactionMachine.loaded",
        "self._attend(entry, now)",
        "if not entry.value.state.is_prepared:\n    self._attend(entry, now)",
        "aimed:coordinator_dies_deciding",
        "aimed:coordinator_dies_marking",
    ),
    _bug(
        "transactions: forget the partitions that were added before",
        f"{_ROOM}/adding.py",
        "add",
        "present.with_all(new)",
        "type(present).of(new)",
        "kill",
    ),
    _bug(
        "transactions: keep the epoch for the next process",
        f"{_ROOM}/initializing.py",
        "_renew",
        "not goes_on",
        "",
        "kill",
    ),
    _bug(
        "transactions: let the former process add to what is kept",
        f"{_ROOM}/adding.py",
        "_check_kept",
        "return ErrorCode.PRODUCER_FENCED",
        "return ErrorCode.NONE",
        "kill",
    ),
    _bug(
        "transactions: ask for markers before the decision is committed",
        _MACHINE,
        "TransactionMachine._attend",
        "self._uncommitted.append((entry.end, entry))",
        "self._ask_markers(entry)\nself._on_markers_due()",
        "pause",
    ),
    _bug(
        "transactions: forget with the coordinator what is open",
        _MACHINE,
        "TransactionMachine.loaded",
        "self._attend(entry, now)",
        "if entry.value.state is not TransactionState.ONGOING:\n    self._attend(entry, now)",
        "kill",
    ),
    _bug(
        "transactions: be complete at the first marker",
        _MACHINE,
        "TransactionMachine.note",
        "if not entry.unmarked:\n    entry.set(now.monotonic_ms)",
        "entry.set(now.monotonic_ms)",
        "kill",
    ),
]

HOSTING = [
    _bug(
        "coordinators: load none whose log is made in a later turn",
        "broker/coordinator/runtime.py",
        "CoordinatorRuntime._leading",
        "self._look(partition.partition)",
        "pass",
        "conditions",
    ),
]

MARKERS = [
    _bug(
        "markers: take a refusal for success",
        _MARKERS,
        "MarkerSender._settle",
        "self._rest(item)",
        "written.append(item)",
        "kill",
        "aimed:marked_leader_dies",
    ),
    _bug(
        "markers: send none again after an error of the network",
        _MARKERS,
        "MarkerSender._send",
        "self._rest_all(some)",
        "",
        "kill",
        "aimed:marked_leader_dies",
    ),
    _bug(
        "markers: commit in the partitions that the coordinator leads itself",
        _MARKERS,
        "_marker",
        "due.commit",
        "True",
        "kill",
    ),
    _bug(
        "markers: abort in the partitions of other leaders",
        _MARKERS,
        "_request",
        "item.due.commit",
        "False",
        "kill",
    ),
    _bug(
        "verification: trust producers whose coordinator is elsewhere",
        _VERIFICATION,
        "Verification._send",
        "self._settle(each, _error(told.get((transactional_id, *each.partition), missing)))",
        "self._settle(each, ErrorCode.NONE)",
        "kill",
    ),
    _bug(
        "verification: trust producers whose coordinator is here",
        _VERIFICATION,
        "_Waiter.answer",
        "self._settle(question, error)",
        "self._settle(question, ErrorCode.NONE)",
        "kill",
    ),
]

LOGS = [
    _bug(
        "verification: let a verdict outlast the marker of its transaction",
        "broker/replication/transactional.py",
        "TransactionalBatches.transaction_ended",
        "self.guards.end(partition, producer_id, producer_epoch)",
        "return",
        "aimed:verdicts_overtaken",
    ),
    _bug(
        "stable offset: pass over open transactions",
        _PARTITION,
        "PartitionView.last_stable_offset",
        "first = self._log.first_open_offset",
        "first = high_watermark",
        "kill",
    ),
    _bug(
        "stable offset: take a marker for committed",
        _PARTITION,
        "PartitionView.last_stable_offset",
        "self._undecided.ended",
        "False",
        "kill",
    ),
    _bug(
        "stable offset: show committed readers all that is committed",
        _PARTITION,
        "PartitionView.readable_end",
        "read_committed and not is_follower",
        "False",
        "kill",
    ),
    _bug(
        "producers: leave a transaction open that has a marker",
        _PRODUCERS,
        "ProducerStates.end",
        "self._open.pop(producer_id, None)",
        "",
        "kill",
    ),
    _bug(
        "producers: keep the epoch when a marker raises it",
        _PRODUCERS,
        "ProducerStates.end",
        "producer_id, epoch = header.producer_id, header.producer_epoch\n"
        "entry = self._entries.get(producer_id)",
        "producer_id = header.producer_id\n"
        "entry = self._entries.get(producer_id)\n"
        "epoch = header.producer_epoch if entry is None else entry.epoch",
        "kill",
    ),
    _bug(
        "txnindex: note no aborted transaction",
        _LOG,
        "LogTransactions.announce",
        "marker is None or marker.commit",
        "True",
        "kill",
    ),
    _bug(
        "txnindex: take a marker for durable before its entry is on disk",
        _LOG,
        "LogTransactions._index",
        """
if is_new:
    self._has_index(segment.base_offset)
    log.require_synced(log.directory, segment.txn_index.path)
else:
    log.require_synced(segment.txn_index.path)
""",
        """
if is_new:
    self._has_index(segment.base_offset)
""",
        "cut_power",
        "cut_all_power",
        "kill",
    ),
    _bug(
        "txnindex: note every transaction",
        _LOG,
        "LogTransactions.announce",
        "marker is None or marker.commit",
        "marker is None",
        "kill",
    ),
    _bug(
        "txnindex: tell a reader only of what began behind it",
        _LOG,
        "LogTransactions.aborted",
        "attrgetter('last_offset')",
        "attrgetter('first_offset')",
        "kill",
    ),
    _bug(
        "txnindex: keep the entries of markers that were truncated",
        "storage/cutting.py",
        "LogCuts._cut_to",
        "log.transactions.truncate_index(segment.end_offset)",
        "",
        "aimed:marked_leader_cut_off",
    ),
    _bug(
        "txnindex: make no entries when a log is recovered",
        "storage/producer_recovery.py",
        "recover_producers",
        "yield from _correct_indexes(request, recovered.segments, aborted)",
        "yield from _correct_indexes(request, recovered.segments, [])",
        "kill",
        "cut_power",
    ),
]

OFFSETS = [
    _bug(
        "offsets: let those of aborted transactions count",
        _OFFSETS,
        "OffsetStore.end_transaction",
        "commits and value is not None",
        "value is not None",
        "kill",
    ),
    _bug(
        "offsets: let those of transactions never count",
        _OFFSETS,
        "OffsetStore.end_transaction",
        "commits and value is not None",
        "False",
        "kill",
    ),
    _bug(
        "offsets: pass over markers in a load",
        "broker/replication/hosted.py",
        "_loaded",
        "marker is not None",
        "False",
        "kill",
    ),
    _bug(
        "offsets: tell those before an open transaction for stable",
        "broker/coordinator/group/committing.py",
        "_fetch",
        "request.require_stable and offsets.is_pending(request.group_id, partition)",
        "False",
        "kill",
    ),
]

TRANSACTIONS = [*COORDINATORS, *HOSTING, *MARKERS, *LOGS, *OFFSETS]
