"""The transactions of a producer: carries out what ``stele.producer.transaction_state`` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.config import ProducerConfig
from stele.errors import (
    ApiError,
    CommitFailedError,
    ErrorCode,
    SteleError,
    TransactionAbortedError,
    TransactionStateError,
    UnreachableError,
)
from stele.ids import TopicPartition
from stele.producer.transaction_coordinator import TransactionCoordinator
from stele.producer.transaction_state import (
    CoordinatorAnswer,
    CoordinatorQuestion,
    PreparedTransaction,
    State,
    Transactions,
)
from stele.records import GroupMetadata, OffsetAndMetadata

_LEFT_BEHIND: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""The group has gone on without the member whose offsets should be committed."""


class Records(Protocol):
    """The records of the present transaction."""

    async def deliver(self) -> None:
        """Wait until all of them are acknowledged or have failed. Raises nothing of these."""

    def abandon(self, cause: SteleError) -> bool:
        """Fail the records that are not acknowledged. Returns whether one may be in a partition."""


class Transactional:
    """Calls may come from several tasks. They take their turn."""

    def __init__(
        self,
        config: ProducerConfig,
        view: ClusterView,
        transactional_id: str,
        records: Records,
    ) -> None:
        self.machine = Transactions(
            transactional_id, has_two_phases=config.transaction_two_phase_commit_enable
        )
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._records = records
        self._coordinator = TransactionCoordinator(config, view, transactional_id)
        self._turn = asyncio.Lock()
        self._waits_for = ""  # The question to the coordinator, and its answer.

    # ------------------------------------------------------------------------ beginning

    async def init(self) -> None:
        async with self._turn:
            self.machine.init()
            await self._settle("taking over the transactional id")

    async def begin(self) -> None:
        async with self._turn:
            if self.machine.state is State.UNINITIALIZED:
                self.machine.init()
                await self._settle("taking over the transactional id")
            self.machine.begin()

    # --------------------------------------------------------------------------- ending

    async def commit(self) -> None:
        async with self._turn:
            if self.machine.state is State.IN_TRANSACTION:
                await self._deliver()
            self.machine.commit()
            await self._settle("committing")

    async def prepare(self) -> PreparedTransaction:
        async with self._turn:
            if not self._config.transaction_two_phase_commit_enable:
                raise TransactionStateError(
                    "prepare_transaction needs Producer(..., "
                    "transaction_two_phase_commit_enable=True)"
                )
            await self._deliver()
            return self.machine.prepare()

    async def abort(self) -> None:
        cause = TransactionAbortedError(
            f"the transaction of {self.machine.transactional_id!r} was aborted"
        )
        async with self._turn:
            is_in_doubt = self._records.abandon(cause)
            self.machine.abort(is_in_doubt=is_in_doubt)
            await self._settle("aborting")

    async def complete(self, prepared: PreparedTransaction | None) -> bool:
        """Commit this transaction, which was prepared here or by an earlier process. None: abort
        the prepared transaction, whichever it is. Returns whether there was a transaction to end.
        """
        async with self._turn:
            machine = self.machine
            if machine.state is State.UNINITIALIZED:
                machine.init(keep_prepared=True)
                await self._settle("looking for a prepared transaction")
            if machine.state is State.READY:
                return False
            machine.complete(prepared)
            await self._settle("ending the prepared transaction")
            return True

    async def _deliver(self) -> None:
        """Take nothing more, and wait until everything is acknowledged or has failed."""
        self.machine.close()
        await self._records.deliver()

    # -------------------------------------------------------------------------- offsets

    async def send_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Have the group's offsets committed with the transaction.

        Raises TransactionAbortableError, and others as ``check_may_send`` does.
        """
        async with self._turn:
            self.machine.check_may_send()
            if not offsets:
                return
            self.machine.used()
            try:
                await self._send_offsets(group, dict(offsets))
            except SteleError as error:
                # Without an answer the group's coordinator may still get them.
                self.fail(error, is_in_doubt=isinstance(error, UnreachableError))
            except asyncio.CancelledError:
                self.fail(TransactionAbortedError("send_offsets was cancelled"), is_in_doubt=True)
                raise
            if self.machine.error is not None:
                raise self.machine.error

    async def _send_offsets(
        self, group: GroupMetadata, left: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        identity = self.machine.identity
        assert identity is not None

        async def attempt() -> None:
            told, message = await self._coordinator.commit_offsets(identity, group, left)
            for name, code in told.items():
                if code is ErrorCode.NONE:
                    left.pop(name, None)
                elif code in _LEFT_BEHIND:
                    raise CommitFailedError(
                        code, f"the group {group.group_id} has gone on without this member"
                    )
                elif code is ErrorCode.UNKNOWN_TOPIC_ID and self._view.was_deleted(
                    name.topic, left[name].topic_id
                ):
                    raise CommitFailedError(
                        code,
                        f"the offset of {name} was not taken: the topic that it was read from was "
                        "deleted",
                    )
                else:
                    why = f" ({message})" if message else ""
                    raise ApiError(code, f"the offset of {name} was not taken{why}")
            if left:
                raise UnreachableError(f"no answer for the offsets of {sorted(left)}")

        timeout_s = self._config.max_block_ms / 1000
        what = f"sending offsets of {group.group_id}"
        self._waits_for = what
        try:
            await self._view.keep_asking(attempt, what, timeout_s)
        finally:
            self._waits_for = ""

    # ------------------------------------------------------------------------- failures

    def fail(self, cause: SteleError, *, is_in_doubt: bool) -> None:
        """Something of the transaction has failed: it must be aborted."""
        self.machine.failed(cause, is_in_doubt=is_in_doubt)

    def give_up_records(self) -> None:
        """If the transaction must be aborted, or the producer has failed, nothing more is sent."""
        machine = self.machine
        if machine.error is not None and self._records.abandon(machine.error):
            machine.failed(machine.error, is_in_doubt=True)

    def why(self) -> str:
        """What the producer waits for; empty if it is nothing."""
        if not self._waits_for:
            return ""
        return f"{self._waits_for}; {self._coordinator.where}"

    # -------------------------------------------------------------------------- asking

    async def _settle(self, doing: str) -> None:
        """Ask the machine's question until it is answered, for at most ``max_block_ms``.

        Raises the machine's error, UnreachableError, ApiError, TransactionOutcomeUnknownError.
        """
        machine = self.machine
        deadline = self._clock.monotonic() + self._view.left_s(self._config.max_block_ms / 1000)
        backoff = client_backoff(self._config, self._view.world)
        cause: SteleError = UnreachableError(f"{doing}: no answer in time")
        self._waits_for = doing
        try:
            while (question := machine.question) is not None:
                try:
                    async with asyncio.timeout(deadline - self._clock.monotonic()):
                        answer = await self._ask(question)
                except TimeoutError:
                    raise machine.unknown_outcome(cause) from None
                except UnreachableError as error:
                    cause = error
                else:
                    machine.answered(question, answer)
                    if machine.question != question:
                        backoff.reset()
                        continue
                    cause = ApiError(answer.code, answer.message)
                pause_s = backoff.next_s()
                if self._clock.monotonic() + pause_s >= deadline:
                    raise machine.unknown_outcome(cause)
                self._waits_for = f"{doing}: {cause}"
                if backoff.failures > 2:
                    self._view.waiting.say(self.why(), doing)
                await asyncio.sleep(pause_s)
        finally:
            self._waits_for = ""
        if machine.error is not None:
            raise machine.error

    async def _ask(self, question: CoordinatorQuestion) -> CoordinatorAnswer:
        """Raises UnreachableError."""
        try:
            return await self._coordinator.ask(question, lambda: self.machine.asked(question))
        except ApiError as error:  # no broker names the coordinator
            return CoordinatorAnswer(error.code, error.message)

    @property
    def is_open(self) -> bool:
        """Whether a transaction of this process would stay open until its time-out."""
        machine = self.machine
        if machine.state is State.ABORTING:
            return True
        return machine.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR) and machine.is_used

    @property
    def may_be_aborted(self) -> bool:
        """Whether there is a transaction that is not being committed or prepared, and has not
        failed for good."""
        return self.machine.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
