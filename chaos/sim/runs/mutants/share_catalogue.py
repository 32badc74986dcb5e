"""Planted bugs of share groups."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_MACHINE: Final = "broker/share/machine.py"
_WINDOW: Final = "broker/share/window.py"
_STATES: Final = "broker/coordinator/share/machine.py"
_LED: Final = "broker/sharing/partition.py"
_LOG: Final = "broker/replication/shared.py"
_DRAFT: Final = "broker/coordinator/group/share/draft.py"
_FETCHES: Final = "broker/service/share_fetching.py"
_TAKEN_LATER: Final = "asyncio.ensure_future(_take_all(context, topics, request))"


def _bug(name: str, path: str, function: str, old: str, new: str) -> Mutant:
    """Kills show all of them, so that they can share recorded runs."""
    edit = Edit(path, function, old, new)
    return Mutant(name, (edit,), kinds=("kill",), load=LoadKind.LIGHT)


SHARES = [
    # The share partition.
    _bug(
        "share: give away records that another member has",
        _MACHINE,
        "SharePartition._take",
        "each.state is not _AVAILABLE or each.due_ms",
        "each.state.is_final or each.due_ms",
    ),
    _bug(
        "share: give a record up after its first delivery",
        _MACHINE,
        "SharePartition._after_delivery",
        "count < self.limits.delivery_count_limit",
        "False",
    ),
    _bug(
        "share: deliver a record once more than the limit allows",
        _MACHINE,
        "SharePartition._after_delivery",
        "count < self.limits.delivery_count_limit",
        "count <= self.limits.delivery_count_limit",
    ),
    _bug(
        "share: do not count deliveries",
        _MACHINE,
        "SharePartition.acquire",
        "each.count += 1",
        "",
    ),
    _bug(
        "share: take released records for accepted",
        _MACHINE,
        "SharePartition._outcome",
        "self._after_delivery(count)",
        "_ACKNOWLEDGED",
    ),
    _bug(
        "share: release all records when one member is gone",
        _MACHINE,
        "SharePartition.end_session",
        "each.holder == member and each.write < 0",
        "each.holder and each.write < 0",
    ),
    _bug(
        "share: leave acquired records behind",
        _WINDOW,
        "Window.move_up",
        "not each.state.is_final",
        "each.state is RecordState.AVAILABLE",
    ),
    _bug(
        "share: forget the holder of a part of a range",
        _WINDOW,
        "Range.cut_before",
        "before.holder, before.lock_until_ms = self.holder, self.lock_until_ms",
        "before.lock_until_ms = self.lock_until_ms",
    ),
    _bug(
        "share: count deliveries that were given back",
        _MACHINE,
        "SharePartition.end_session",
        "each.count - 1",
        "each.count",
    ),
    _bug(
        "share: forget delivery counts with a new leader",
        _MACHINE,
        "SharePartition.__init__",
        "Range(*batch)",
        "Range(batch.first, batch.last, batch.state)",
    ),
    Mutant(
        "share: have more records in flight than the limit allows",
        (
            Edit(
                _MACHINE,
                "SharePartition.fetch_offset",
                "None if is_full else self._search_from",
                "self._search_from",
            ),
            Edit(
                _MACHINE,
                "SharePartition._note",
                "self.limits.partition_max_record_locks - len(window)",
                "last + 1",
            ),
        ),
        kinds=("kill",),
        load=LoadKind.LIGHT,
    ),
    # The leader of its partition.
    _bug(
        "share: keep the records of a session that has ended",
        "broker/sharing/sessions.py",
        "ShareSessions.end",
        "self._release(session)",
        "",
    ),
    _bug(
        "share: forget what is done behind the start offset with a new leader",
        _LED,
        "LedSharePartition._loaded",
        "[each for each in state.batches if each.last >= start]",
        "[]",
    ),
    _bug(
        "share: begin anew with each leader",
        _LED,
        "LedSharePartition._loaded",
        "start == NO_START",
        "start >= NO_START",
    ),
    _bug(
        "share: leave the newest decisions out of the lag",
        _LED,
        "LedSharePartition._write_queue",
        "machine.complete_count + decided",
        "machine.complete_count",
    ),
    _bug(
        "share: give members records of open transactions",
        _LOG,
        "SharedPartition.end_offset",
        "machine.last_stable_offset if read_committed else machine.high_watermark",
        "machine.high_watermark",
    ),
    _bug(
        "share: give members records of aborted transactions",
        _LOG,
        "_batch",
        "not header.is_control and not is_aborted",
        "not header.is_control",
    ),
    _bug(
        "share: send the first batch of a delivery only",
        "broker/sharing/fetching.py",
        "_of_acquired",
        "return found",
        "return found[:1]",
    ),
    # Dead letters.
    _bug(
        "share: give rejected records up without dead letters",
        _MACHINE,
        "SharePartition._outcome",
        "_REJECTED if is_rejected and self.limits.has_dead_letters else _ARCHIVED",
        "_ARCHIVED",
    ),
    _bug(
        "share: write dead letters again as another producer",
        "broker/sharing/dead_letters.py",
        "DeadLetters._write",
        "plan.producer_id",
        "await self._office.new_producer_id()",
    ),
    Mutant(
        "share: give records before the acknowledgements of the same fetch are taken",
        (
            Edit(_FETCHES, "fetch", "await _take_all(context, topics, request)", _TAKEN_LATER),
            Edit(_FETCHES, "fetch", "_outcomes(taken)", "_outcomes(await taken)"),
        ),
        load=LoadKind.LIGHT,
    ),
    # The share coordinator.
    _bug(
        "share state: forget earlier batches with each update",
        _STATES,
        "changed",
        "merged(state.batches, update.batches, start_offset)",
        "merged((), update.batches, start_offset)",
    ),
    _bug(
        "share state: let the start offset go back",
        _STATES,
        "changed",
        "max(state.start_offset, update.start_offset)",
        "update.start_offset",
    ),
    # The group.
    _bug(
        "share group: assign anew within an epoch",
        _DRAFT,
        "ShareDraft.assign",
        "ShareTargetEpoch(self.epoch, now.time_ms)",
        "ShareTargetEpoch(max(group.target_epoch.epoch, 1), now.time_ms)",
    ),
]
