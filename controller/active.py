"""The driver of the controller's state machine: decides, proposes to the quorum and answers.

Decisions are made one after the other on the newest image. Each is proposed at once and answered
when it is committed. An answer without records waits as well, since the image that it is based on
may not be committed yet and may still be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from controller.chain import ImageChain
from controller.change_log import log_changes
from controller.machine import Context, ControllerResult
from controller.metrics import ControllerMetrics
from controller.request_ids import Refusals
from metadata.explain.history import Decision
from metadata.features import unsupported
from metadata.image import MetadataImage
from metadata.records import MetadataError, decode, encode
from metadata.snapshot import image_of
from raft.api import CommittedBatch, MetadataQuorum, NotLeaderError
from raft.membership import Refusal
from raft.quorum import Voter
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.v1 import metadata_pb2 as pb
from stele.world import Clock, Rng

logger = logging.getLogger(__name__)

Reply = TypeVar("Reply")
Decide = Callable[[Context], ControllerResult[Reply]]


class DecisionMaker:
    """Holds the image chain, and makes decisions while this node leads the quorum."""

    def __init__(
        self,
        *,
        cluster_id: str,
        static: Mapping[str, str],
        rng: Rng,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        on_decided: Callable[[MetadataImage, Sequence[pb.MetadataRecord]], None],
    ) -> None:
        """``on_decided`` is called with the records of each decision and the image after them, when
        they are proposed."""
        self._cluster_id = cluster_id
        self._static = static
        self._rng = rng
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_decided = on_decided
        self._chain = ImageChain()
        self._quorum: MetadataQuorum | None = None
        # True once a batch could not be applied: the committed image may lack it.
        self.failed = False
        # The refusals of this leadership: a refusal is not written into the log.
        self.refusals = Refusals()
        # The quorum epoch in which this node decides. None while it does not decide.
        self._epoch: int | None = None
        self.metrics = ControllerMetrics(lambda: self._chain.committed)

    @property
    def committed(self) -> MetadataImage:
        return self._chain.committed

    @property
    def newest(self) -> MetadataImage:
        """The image after everything proposed. It differs from ``committed`` only while this node
        decides."""
        return self._chain.newest

    @property
    def active(self) -> bool:
        return self._epoch is not None

    # ---------------------------------------------------------------- the quorum

    def attach(self, quorum: MetadataQuorum) -> None:
        self._quorum = quorum

    def claimed(self, epoch: int) -> None:
        self._epoch = epoch
        self.metrics.active = True

    def resigned(self) -> None:
        self._epoch = None
        self.refusals.forget()
        self.metrics.active = False
        self._chain.drop()

    def commit(self, batches: Sequence[CommittedBatch], end_offset: int) -> None:
        """As ``raft.api.QuorumListener.on_commit``."""
        try:
            for batch in batches:
                before = self._chain.committed
                self._chain.commit(batch)
                if self.active:  # one controller tells it for all
                    log_changes(self._decision(batch, before))
            self._chain.advance(end_offset)
        except MetadataError as error:
            self._fail(error)

    def _decision(self, batch: CommittedBatch, before: MetadataImage) -> Decision:
        records = tuple(decode(value) for value in batch.records)
        return Decision(
            batch.base_offset,
            batch.epoch,
            batch.timestamp_ms,
            records,
            before,
            self._chain.committed,
        )

    def reset(self, end_offset: int, values: Sequence[bytes]) -> None:
        """A snapshot replaces the committed image."""
        try:
            self._chain.reset(image_of(end_offset, values))
        except MetadataError as error:
            self._fail(error)

    def voter_refusal(self, voter: Voter) -> Refusal | None:
        """Why a controller with the voter's features cannot vote now. None if it can.

        The answer is based on everything decided so far. Later decisions see the new voter.
        """
        if not self.active:
            message = "the controller that leads is not active yet; try again"
            return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)
        if (reason := unsupported(self.newest, voter.features)) is None:
            return None
        message = f"controller {voter.id} cannot vote: {reason}"
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)

    # ---------------------------------------------------------------- decisions

    def submit(self, decide: Decide[Reply]) -> Reply:
        """Decide and propose. Returns the reply without waiting for the commit.

        Raises ApiError with the machine's refusal, or NOT_CONTROLLER if this node does not decide.
        """
        return self._submit(decide).reply

    def _submit(self, decide: Decide[Reply]) -> ControllerResult[Reply]:
        if self._quorum is None or self._epoch is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not the active one")
        context = Context(
            image=self._chain.newest,
            next_offset=self._quorum.next_offset(epoch=self._epoch),
            static=self._static,
            rng=self._rng,
            cluster_id=self._cluster_id,
            controllers=self._quorum.controller_features,
            now_ms=self._clock.time_ms(),
        )
        result = decide(context)
        if result.records:
            values = [encode(record) for record in result.records]
            base_offset = self._quorum.propose(values, epoch=self._epoch)
            self._chained(base_offset, result)
        return result

    def _chained(self, base_offset: int, result: ControllerResult[Reply]) -> None:
        try:
            self._chain.propose(base_offset, len(result.records), result.image)
        except MetadataError as error:
            self._fail(error)
            raise
        self.metrics.count(result.records)
        self._tell_losses(result.records, result.image)
        self._on_decided(result.image, result.records)

    @staticmethod
    def _tell_losses(records: Sequence[pb.MetadataRecord], image: MetadataImage) -> None:
        for record in records:
            change = record.partition_change
            if change.unclean:
                topic = image.topic_by_id(change.topic_id)
                logger.warning(
                    "unclean election of %s-%d: broker %d leads without having been in sync;"
                    " acknowledged records may be lost",
                    "?" if topic is None else topic.name,
                    change.partition,
                    change.leader,
                )

    def _fail(self, error: MetadataError) -> None:
        """The image differs from the log. From now on this node decides nothing and answers
        nothing from it."""
        logger.error("the metadata log does not fit the image: %s", error)
        self.failed = True
        self.resigned()
        self._on_fatal(error)

    async def settled(self) -> bool:
        """Wait until everything proposed so far is committed. False if leadership was lost."""
        return await self._chain.settled()

    async def decide(self, decide: Decide[Reply], *, request_id: bytes = b"") -> Reply:
        """Decide, propose and wait for the commit.

        Raises ApiError if the machine refuses, or NOT_CONTROLLER if this node does not decide (then
        nothing was proposed). Raises OutcomeUnknownError if leadership was lost before the commit.
        """
        try:
            result = self._submit(decide)
        except NotLeaderError:
            raise
        except ApiError:
            # A refusal holds only if the image it was based on is committed.
            if self.active and not await self._chain.settled():
                raise ApiError(ErrorCode.NOT_CONTROLLER, "leadership was lost") from None
            raise
        if not await self._chain.settled():
            if result.records or result.repeats:
                raise OutcomeUnknownError.because(
                    "the controller lost its leadership before the change was committed", request_id
                )
            raise ApiError(ErrorCode.NOT_CONTROLLER, "leadership was lost")
        return result.reply

    async def linearizable(self) -> MetadataImage:
        """The committed image, with every change that was acknowledged before this call.

        A majority must confirm that this node still leads, because it may have been deposed without
        knowing it yet. Raises ApiError NOT_CONTROLLER if this node does not decide, or loses the
        leadership meanwhile.
        """
        if self._quorum is None or self._epoch is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not the active one")
        read_index = await self._quorum.confirm_leadership(epoch=self._epoch)
        if not await self._chain.caught_up(read_index):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "leadership was lost")
        return self._chain.committed
