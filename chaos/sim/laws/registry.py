"""All laws. A new law is a file and a line here.

A law may use what the laws before it have found out.
"""

from __future__ import annotations

from typing import Final

from chaos.sim.laws.access import AccessFollowsTheRules
from chaos.sim.laws.acknowledgements import Acknowledged
from chaos.sim.laws.asked_elections import ElectionsAreAsAsked
from chaos.sim.laws.asked_voters import VotersChangeAsAsked
from chaos.sim.laws.atomic_transactions import TransactionsAreAtomic
from chaos.sim.laws.broker_standings import BrokersKnowTheirStanding
from chaos.sim.laws.checkpoints import CheckpointsClaimWhatIsThere
from chaos.sim.laws.committed_offsets import CommittedOffsetsStay
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.compacted_logs import CompactedLogsKeepTheLastValues
from chaos.sim.laws.coordinator_deadlines import DeadlinesPass
from chaos.sim.laws.coordinator_logs import CoordinatorsReplayTheirLogs
from chaos.sim.laws.counted_commits import CommitsAreCounted
from chaos.sim.laws.crowds import CrowdsStayWithinTheirLimits
from chaos.sim.laws.dead_letters import DeadLettersAreWrittenOnce
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.deletions import DeletedRecordsStayDeleted
from chaos.sim.laws.directories import DirectoriesFailWithTheirDevice
from chaos.sim.laws.durable_segments import DurableIsDurable
from chaos.sim.laws.durable_starts import DurableStartsAreDurable
from chaos.sim.laws.elections import LeadersAreElected
from chaos.sim.laws.fenced_brokers import FencedBrokersAcknowledgeNothing
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing
from chaos.sim.laws.fetched_logs import FetchesTellWhatIsDurable
from chaos.sim.laws.followed_hints import ObserversAskTheLeader
from chaos.sim.laws.follower_epochs import FollowersKnowTheEpoch
from chaos.sim.laws.generations import PartitionsHaveOneOwner
from chaos.sim.laws.heartbeats import LeadersAcknowledgeHeartbeats
from chaos.sim.laws.held_tokens import GoneTokensServeNobody
from chaos.sim.laws.high_watermarks import HighWatermarksOnlyRise
from chaos.sim.laws.holders import SomeoneHasEverything
from chaos.sim.laws.idle_partitions import IdlePartitionsAreLeftAlone
from chaos.sim.laws.isr import IsrHasTheHighWatermark
from chaos.sim.laws.isr_members import IsrLosesOnlyWhoLags
from chaos.sim.laws.isr_proposals import IsrProposalsAreFresh
from chaos.sim.laws.known_producers import MembersKnowTheProducers
from chaos.sim.laws.law import Law
from chaos.sim.laws.leader_choices import LeadersAreChosenInOrder
from chaos.sim.laws.leaders_metadata import LeadersGoByTheirMetadata
from chaos.sim.laws.leases import LeasesBeginWithTheMetadata
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.laws.log_transactions import LogsKnowTheirTransactions
from chaos.sim.laws.lost_directories import OfflineReplicasLeadNothing
from chaos.sim.laws.markers import MarkersFollowDecisions
from chaos.sim.laws.member_epochs import MembersReconcile
from chaos.sim.laws.members import MembersHaveEverything
from chaos.sim.laws.metadata_history import MetadataHistory
from chaos.sim.laws.metadata_images import MetadataIsTheSame
from chaos.sim.laws.named_replicas import NamedReplicasAreTheBest
from chaos.sim.laws.newcomers import NewcomersStayWithinTheirLimits
from chaos.sim.laws.openings import LogsOpenAsTheyWereLeft
from chaos.sim.laws.orderly_stops import StopsAreAskedFor
from chaos.sim.laws.own_denials import NobodyLiftsItsOwnDenial
from chaos.sim.laws.partition_epochs import EpochsOnlyGrow
from chaos.sim.laws.partition_leaders import OneLeaderPerPartitionEpoch
from chaos.sim.laws.quorum_answers import QuorumAnswersAreTrue
from chaos.sim.laws.quorum_commits import MajorityHolds
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.quotas import QuotasAreKept
from chaos.sim.laws.reads import ReadsAreLinearizable
from chaos.sim.laws.refused_deletions import DeletionsAreRefusedForAReason
from chaos.sim.laws.refused_pre_votes import PreVotesAreRefusedForAReason
from chaos.sim.laws.refused_voters import VotersAreRefusedForAReason
from chaos.sim.laws.replica_sets import ReplicasFitTogether
from chaos.sim.laws.resting_followers import RestingFollowersHaveEverything
from chaos.sim.laws.resumed_following import VotersGoOnWithTheirLeader
from chaos.sim.laws.retention import RetentionTakesNoMore
from chaos.sim.laws.room import LeadersHaveRoom
from chaos.sim.laws.served_readers import ReadersAreServed
from chaos.sim.laws.sessions import NothingGoesUnnoticed
from chaos.sim.laws.share_coordinator_logs import ShareCoordinatorsReplayTheirLogs
from chaos.sim.laws.share_counts import DeliveriesAreCounted
from chaos.sim.laws.share_holders import SharedRecordsHaveOneHolder
from chaos.sim.laws.share_lags import LagsCountWhatIsLeft
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.laws.share_sessions import HoldersHaveSessions
from chaos.sim.laws.share_successions import ShareLeadersGoOn
from chaos.sim.laws.share_targets import SharePartitionsAreSpread
from chaos.sim.laws.share_windows import StartOffsetsPassDoneRecords
from chaos.sim.laws.snapshots import SnapshotsEqualTheLog
from chaos.sim.laws.stable_offsets import LastStableOffsetsOnlyRise
from chaos.sim.laws.telemetry import PushesAreTakenInTheirTime
from chaos.sim.laws.token_bounds import TokensKeepTheirBounds
from chaos.sim.laws.told_votes import VotesAreKept
from chaos.sim.laws.turns import RequestsGetTheirTurn
from chaos.sim.laws.unreadable_replicas import UnreadableReplicasAreGivenUp
from chaos.sim.laws.voter_changes import VotersChangeOneByOne
from chaos.sim.laws.votes import OneVotePerEpoch

LAWS: Final[tuple[type[Law], ...]] = (
    # What nodes hold in memory.
    OneLeaderPerQuorumEpoch,
    MetadataIsTheSame,
    # The quorum.
    OneVotePerEpoch,
    MajorityHolds,
    VotersChangeOneByOne,
    VotersChangeAsAsked,
    LeadersAreElected,
    VotesAreKept,
    CommitsAreCounted,
    QuorumAnswersAreTrue,
    FetchesTellWhatIsDurable,
    ObserversAskTheLeader,
    VotersGoOnWithTheirLeader,
    VotersAreRefusedForAReason,
    PreVotesAreRefusedForAReason,
    # The committed metadata.
    EpochsOnlyGrow,
    ReplicasFitTogether,
    FencedBrokersAcknowledgeNothing,
    BrokersKnowTheirStanding,
    LeasesBeginWithTheMetadata,
    LeadersAcknowledgeHeartbeats,
    StopsAreAskedFor,
    LeadersAreChosenInOrder,
    ElectionsAreAsAsked,
    ReadsAreLinearizable,
    SnapshotsEqualTheLog,
    MetadataHistory,
    AccessFollowsTheRules,
    NobodyLiftsItsOwnDenial,
    QuotasAreKept,
    CrowdsStayWithinTheirLimits,
    TokensKeepTheirBounds,
    GoneTokensServeNobody,
    PushesAreTakenInTheirTime,
    NewcomersStayWithinTheirLimits,
    RequestsGetTheirTurn,
    # Partitions.
    OneLeaderPerPartitionEpoch,
    HighWatermarksOnlyRise,
    LastStableOffsetsOnlyRise,
    LeadersGoByTheirMetadata,
    IsrHasTheHighWatermark,
    IsrProposalsAreFresh,
    IsrLosesOnlyWhoLags,
    RestingFollowersHaveEverything,
    IdlePartitionsAreLeftAlone,
    ReadersAreServed,
    NamedReplicasAreTheBest,
    FollowersKnowTheEpoch,
    NothingGoesUnnoticed,
    LeadersHaveRoom,
    # What was promised.
    CommittedRecordsStay,
    SomeoneHasEverything,
    MembersHaveEverything,
    MembersKnowTheProducers,
    DeletedRecordsStayDeleted,
    DeletionsAreRefusedForAReason,
    Acknowledged,
    # Groups.
    CommittedOffsetsStay,
    PartitionsHaveOneOwner,
    MembersReconcile,
    # Share groups.
    DecidedRecordsStayDecided,
    DeliveriesAreCounted,
    DeadLettersAreWrittenOnce,
    SharedRecordsHaveOneHolder,
    HoldersHaveSessions,
    StartOffsetsPassDoneRecords,
    ShareCoordinatorsReplayTheirLogs,
    ShareLeadersGoOn,
    LagsCountWhatIsLeft,
    ShareMembersKeepTheirEpochs,
    SharePartitionsAreSpread,
    # Transactions.
    TransactionsAreAtomic,
    FencedProducersWriteNothing,
    CoordinatorsReplayTheirLogs,
    MarkersFollowDecisions,
    DeadlinesPass,
    # Logs and disks.
    LogsOpenAsTheyWereLeft,
    LogsRememberWhatTheyHold,
    LogsKnowTheirTransactions,
    RetentionTakesNoMore,
    CompactedLogsKeepTheLastValues,
    CheckpointsClaimWhatIsThere,
    DurableIsDurable,
    DurableStartsAreDurable,
    DirectoriesFailWithTheirDevice,
    OfflineReplicasLeadNothing,
    UnreadableReplicasAreGivenUp,
)
