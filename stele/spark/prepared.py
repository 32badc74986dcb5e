"""The prepared transactions of tasks, as their coordinators know them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stele.errors import BulkError, ErrorCode, SteleError
from stele.spark.decisions import Entry, Prepared
from stele.spark.doors import Door
from stele.spark.options import SinkOptions

if TYPE_CHECKING:
    from stele import Admin, Producer
    from stele.admin.transactions import TransactionDescription

log = logging.getLogger(__name__)

_OPEN, _COMMITTED = "Ongoing", ("PrepareCommit", "CompleteCommit")


class WriteError(Exception):
    """A batch was not written. Nothing of it is visible to readers of committed records."""


class LostTransactionError(Exception):
    """A transaction that the ledger has committed was aborted by another program. Rows are
    missing."""


def producer_of(options: SinkOptions, transactional_id: str) -> Producer:
    from stele import Producer  # loaded where it runs: Spark forks its workers

    return Producer(
        options.bootstrap_servers,
        **options.client,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    )


def open_transactions(admin: Admin, prefix: str, older_than_ms: int = 0) -> list[str]:
    """The ids with this prefix whose transactions are not ended."""
    found = admin.list_transactions(states=(_OPEN,), min_duration_ms=older_than_ms)
    return [each.transactional_id for each in found if each.transactional_id.startswith(prefix)]


def check_prepared(admin: Admin, transactions: Sequence[Prepared]) -> None:
    """Raises WriteError unless each is still open as its task has prepared it. After a decision it
    would be too late to write the rows again."""
    states = _states(admin, transactions)
    for each in transactions:
        if not _is_prepared(states.get(each.transactional_id), each):
            raise WriteError(
                f"transaction {each.transactional_id} was ended before the decision by somebody "
                "else, e.g. by transaction.two.phase.commit.max.ms of the brokers, or by hand"
            )


def finish(door: Door, standing: Entry) -> list[str]:
    """Commit the transactions of a standing decision that are still open. Returns the ids that can
    be forgotten. Raises LostTransactionError.

    An id that its coordinator does not know was committed, and then forgotten.
    """
    from stele.producer.transaction_state import PreparedTransaction

    states = _states(door.admin, standing.transactions)
    found = [each for each in standing.transactions if each.transactional_id in states]
    prepared = [each for each in found if _is_prepared(states[each.transactional_id], each)]
    if prepared:
        door.prepared.commit(
            {each.transactional_id: PreparedTransaction.parse(each.state) for each in prepared}
        )
    # The answer says that a transaction was ended, not how.
    states.update(_states(door.admin, prepared))
    for each in found:
        state = states[each.transactional_id].state
        if state not in _COMMITTED:
            raise LostTransactionError(
                f"transaction {each.transactional_id} was ended by somebody else after the "
                f"decision to commit it (it is {state}): rows of batch {standing.batch} are missing"
            )
    return [each.transactional_id for each in found]


def finish_of_others(door: Door, standing: Entry) -> list[str]:
    """``finish`` what another driver has decided and perhaps not finished. Nobody may ask for that
    batch again, and the batch of the caller does not depend on it, so a loss is only logged."""
    try:
        return finish(door, standing)
    except LostTransactionError as error:
        log.error("write %s: %s", standing.write, error)
        return []


def abort_all(admin: Admin, transactional_ids: Sequence[str]) -> None:
    """What no decision lists, and none can list any more."""
    for name in transactional_ids:
        log.warning("transaction %s is aborted: no decision lists it", name)
        admin.fence_producer(name)


def forget(admin: Admin, transactional_ids: Sequence[str]) -> None:
    """No other attempt ever has these ids, so their coordinators would keep them for nothing. Waits
    until the transactions are ended in all partitions."""
    if not transactional_ids:
        return
    try:
        admin.forget_transactional_ids(transactional_ids)
    except SteleError as error:  # they expire by themselves
        log.info("transactional ids are not forgotten yet: %s", error)


def _is_prepared(found: TransactionDescription | None, prepared: Prepared) -> bool:
    """Whether this transaction, and no other one of the id, is open."""
    if found is None or found.state != _OPEN:
        return False
    return f"{found.producer_id}:{found.producer_epoch}" == prepared.state


def _states(admin: Admin, transactions: Sequence[Prepared]) -> dict[str, TransactionDescription]:
    """The transactions that their coordinators know."""
    names = [each.transactional_id for each in transactions]
    if not names:
        return {}
    try:
        found = admin.describe_transactions(names)
    except BulkError as error:
        for each in error.failed.values():
            if each.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
        left = [name for name in names if name not in error.failed]
        found = admin.describe_transactions(left) if left else []
    return {each.transactional_id: each for each in found}
