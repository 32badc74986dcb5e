"""A consumer's group: what happens to its partitions while the application polls.

The application hears of partitions only within its own calls, and reads them only between. So it
never handles a record of a partition that another member owns already, unless it was too slow.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.assigned import AssignedPartitions
from stele.consumer.group.assignors import ASSIGNORS
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.listener import OnPartitions, RebalanceListener, call
from stele.consumer.group.member import GroupMember
from stele.consumer.group.membership import Loss, Membership, State
from stele.consumer.group.offsets import GroupOffsets, Offsets
from stele.consumer.group.reconciling import ReconcilingMembership
from stele.consumer.group.reconciling_member import ReconcilingMember
from stele.consumer.group.requests import Standing
from stele.consumer.group.topic_choice import TopicChoice
from stele.errors import ApiError, CommitFailedError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.records import GroupMetadata, OffsetAndMetadata

LAST_COMMIT_S: Final = 10.0
"""How long giving partitions up waits for their commit."""


def _member(
    config: ConsumerConfig,
    view: ClusterView,
    coordinator: Coordinator,
    announce: Callable[[], None],
) -> GroupMember | ReconcilingMember:
    """A member by the protocol that is configured."""
    instance_id = config.group_instance_id
    if config.group_protocol == "classic":
        assignors = [ASSIGNORS[each] for each in config.strategies]
        return GroupMember(config, view, coordinator, Membership(assignors, instance_id), announce)
    member_id = str(uuid.UUID(bytes=view.world.rng.randbytes(16), version=4))
    membership = ReconcilingMembership(member_id, instance_id)
    return ReconcilingMember(config, view, coordinator, membership, announce)


class ConsumerGroup:
    """Also for a consumer that names its partitions itself and only keeps offsets in the group."""

    def __init__(
        self,
        config: ConsumerConfig,
        view: ClusterView,
        coordinator: Coordinator,
        group_id: str,
        reader: AssignedPartitions,
    ) -> None:
        self.is_subscribed = False
        self._config = config
        self._view = view
        self._coordinator = coordinator
        self._group_id = group_id
        self._reader = reader
        self._listener = RebalanceListener()
        self._member = _member(config, view, coordinator, reader.announce)
        self._membership = self._member.membership
        self._offsets = GroupOffsets(
            config,
            view,
            coordinator,
            reader.positions,
            self._membership.on_told,
            lambda: self._membership.standing,
            reader.announce,
        )
        self.is_rebalancing = False  # an application's function is being called

    # ------------------------------------------------------------------------ subscription

    def subscribe(self, choice: TopicChoice, listener: RebalanceListener | None) -> None:
        self.is_subscribed = True
        self._listener = listener or RebalanceListener()
        self._member.subscribe(choice)

    async def unsubscribe(self, reason: str) -> None:
        """Give all partitions up, and leave the group. Without a subscription there are none."""
        owned, is_lost = self._membership.owned, not self._membership.standing.is_member
        try:
            if not is_lost:
                await self._commit_at_once(owned)
        finally:
            try:
                await self._give_up(owned, is_lost=is_lost)
            finally:
                self.is_subscribed = False
                await self._member.leave(reason)

    async def close(self) -> None:
        """Leave the group, having committed. A consumer that only keeps offsets commits, too."""
        try:
            if self.is_subscribed:
                await self.unsubscribe("the consumer was closed")
            else:
                await self._commit_at_once(list(self._reader.positions))
        finally:
            await self._member.close()
            await self._offsets.close()

    def metadata(self) -> GroupMetadata:
        standing = self._membership.standing
        return GroupMetadata(
            self._group_id, standing.generation, standing.member_id, standing.instance_id
        )

    # ------------------------------------------------------------------------ polls

    def poll_begins(self) -> None:
        self._member.poll_begins()
        self._offsets.commit_in_time(self._standing, list(self._reader.positions))

    def poll_ends(self) -> None:
        self._member.poll_ends()

    def find_starts(self) -> None:
        """Have partitions that are new begin at their committed offsets."""
        self._offsets.find_starts()

    async def go_on(self) -> None:
        """Do what the group asks of the application: called in each turn of a poll.

        Raises what made the membership end, the refusal of an automatic commit, and what the
        application's functions raise.
        """
        self._offsets.raise_denial()
        self._offsets.find_starts()
        if not self.is_subscribed or self.is_rebalancing:
            return
        member, membership = self._member, self._membership
        member.start()
        if member.failure is not None:
            await self._fail(member.failure)
        member.consider_metadata()
        if membership.state is State.ASSIGNED:
            await self._take_share()
        if member.needs_join:
            await self._give_up_before_join()
            if member.needs_join:  # otherwise the last commit has brought news
                member.join()

    # A commit that is cancelled, with the poll around it, has changed nothing: the partitions are
    # still owned, and the next poll begins again. Once the application's function is called, they
    # are given up, whatever it raises.

    async def _give_up_before_join(self) -> None:
        membership = self._membership
        loss = membership.giving_up()
        if not loss.is_lost:
            await self._commit_at_once(loss.partitions)
            loss = membership.giving_up()  # the answer may have said that the member was removed
        try:
            await self._give_up(loss.partitions, is_lost=loss.is_lost)
        finally:
            membership.gave_up(loss)

    async def _take_share(self) -> None:
        membership = self._membership
        share = membership.share()
        await self._commit_at_once(share.revoked)
        try:
            await self._give_up(share.revoked, is_lost=False)
        finally:
            membership.released(share)
        if not membership.took_share(share):
            return  # the member was removed while it gave partitions up
        # Some of its new partitions may have been taken away again meanwhile.
        added = share.added & membership.owned
        self._reader.take(sorted(added))
        self._offsets.find_starts()
        self._member.took_share()
        await self._call(self._listener.on_partitions_assigned, added)

    async def _give_up(self, partitions: Iterable[TopicPartition], *, is_lost: bool) -> None:
        """Call the application's function, and stop reading. The records that were returned were
        committed before.
        """
        names = sorted(partitions)
        if not names:
            return
        revoked, lost = self._listener.on_partitions_revoked, self._listener.on_partitions_lost
        try:
            await self._call((lost or revoked) if is_lost else revoked, names)
        finally:
            self._reader.drop(names)
            self._offsets.forget(names)

    async def _call(
        self, function: OnPartitions | None, partitions: Iterable[TopicPartition]
    ) -> None:
        self.is_rebalancing = True
        try:
            await call(function, sorted(partitions))
        finally:
            self.is_rebalancing = False

    async def _fail(self, failure: SteleError) -> None:
        loss = Loss(self._membership.owned, is_lost=True)
        try:
            await self._give_up(loss.partitions, is_lost=True)
        finally:
            self._membership.gave_up(loss)
        if isinstance(failure, ApiError) and failure.code.is_denial:
            self._member.begin_anew()
        raise failure

    # ------------------------------------------------------------------------ reasons

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the member is subscribed to."""
        return self._membership.subscription

    @property
    def start_waits_for(self) -> str:
        """Why committed offsets are not known yet."""
        return self._offsets.waits_for

    def why(self) -> str:
        """Why the partitions are not settled; empty if they are."""
        member, membership = self._member, self._membership
        if not self.is_subscribed:
            return ""
        if member.failure is not None:
            return f"the consumer is no member of group {self._group_id}: {member.failure}"
        where = f"the coordinator is {self._coordinator.where}"
        if member.is_joining:
            awaited = member.waits_for or "the request is being sent"
            return f"group {self._group_id} is rebalancing, waits for: {awaited}; {where}"
        if membership.state is State.ASSIGNED:
            return "the group has assigned partitions: poll() takes them"
        if membership.needs_join:
            return f"group {self._group_id} must be joined ({membership.reason}): poll() does it"
        if not membership.owned:
            return f"the other members of group {self._group_id} have all partitions, or none exist"
        return ""

    # ------------------------------------------------------------------------ offsets

    @property
    def _standing(self) -> Standing:
        """The identity for commits. A consumer that is no member commits for a group without
        members.
        """
        return self._membership.standing if self.is_subscribed else Standing()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The application's position in each partition."""
        return self._offsets.consumed(self._reader.positions)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        timeout_s: float | None = None,
    ) -> None:
        """What earlier polls returned, unless offsets are given.

        Raises CommitFailedError, FencedInstanceError, ApiError, UnreachableError.
        """
        if asked := self._to_commit(offsets):
            await self._offsets.commit(self._standing, asked, timeout_s)

    def begin_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> asyncio.Future[None]:
        """As ``commit``, of what was returned before this call."""
        try:
            return self._offsets.begin(self._standing, self._to_commit(offsets))
        except CommitFailedError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def _to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> Offsets:
        """Raises CommitFailedError if the consumer has lost its partitions."""
        if offsets is None:
            offsets = self._offsets.consumed(self._reader.positions)
        if offsets and self.is_subscribed and not self._standing.is_member:
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"nothing was committed: the consumer is not a member of group "
                f"{self._group_id} now; "
                "poll until it has partitions again",
            )
        return self._offsets.identified(offsets)

    async def _commit_at_once(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the offsets of returned records, of partitions that are given up next."""
        await self._offsets.commit_at_once(self._standing, partitions, LAST_COMMIT_S)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.committed(partitions, timeout_s)
