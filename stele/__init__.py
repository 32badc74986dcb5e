"""Stele: a replicated, partitioned commit log. This is the package that users import.

``from stele import Producer, Consumer, Admin`` gives the synchronous clients. ``stele.aio`` has the
same names for asyncio. Names are loaded when they are first used, so that a server that imports
``stele.world`` does not load the clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stele.lazy_names import lazy_names
from stele.version import VERSION

if TYPE_CHECKING:
    from stele.admin.acls import Acl as Acl
    from stele.admin.acls import AclFilter as AclFilter
    from stele.admin.client_quotas import QuotaAlteration as QuotaAlteration
    from stele.admin.client_quotas import QuotaComponent as QuotaComponent
    from stele.admin.descriptions import ConfigResource as ConfigResource
    from stele.admin.descriptions import NewTopic as NewTopic
    from stele.admin.users import ScramDeletion as ScramDeletion
    from stele.admin.users import ScramUpsertion as ScramUpsertion
    from stele.consumer.group.listener import RebalanceListener as RebalanceListener
    from stele.errors import ApiError as ApiError
    from stele.errors import AuthenticationError as AuthenticationError
    from stele.errors import CommitFailedError as CommitFailedError
    from stele.errors import ErrorCode as ErrorCode
    from stele.errors import FencedInstanceError as FencedInstanceError
    from stele.errors import LogTruncationError as LogTruncationError
    from stele.errors import ProducerFencedError as ProducerFencedError
    from stele.errors import SteleError as SteleError
    from stele.errors import TransactionAbortableError as TransactionAbortableError
    from stele.errors import TransactionOutcomeUnknownError as TransactionOutcomeUnknownError
    from stele.errors import UnreadableBatchError as UnreadableBatchError
    from stele.errors import WakeupError as WakeupError
    from stele.ids import TopicPartition as TopicPartition
    from stele.producer.transaction_state import PreparedTransaction as PreparedTransaction
    from stele.records import AcknowledgeType as AcknowledgeType
    from stele.records import ConsumerRecord as ConsumerRecord
    from stele.records import GroupMetadata as GroupMetadata
    from stele.records import OffsetAndMetadata as OffsetAndMetadata
    from stele.records import OffsetAndTimestamp as OffsetAndTimestamp
    from stele.records import ProducerRecord as ProducerRecord
    from stele.records import RecordMetadata as RecordMetadata
    from stele.records import ShareRecord as ShareRecord
    from stele.security.properties import security_options as security_options
    from stele.sync import Admin as Admin
    from stele.sync import Consumer as Consumer
    from stele.sync import Producer as Producer
    from stele.sync import ShareConsumer as ShareConsumer
    from stele.sync import TopicView as TopicView
    from stele.topic_view.view import Expiry as Expiry

__version__ = VERSION

_HOMES = {
    "AcknowledgeType": "stele.records",
    "Acl": "stele.admin.acls",
    "AclFilter": "stele.admin.acls",
    "Admin": "stele.sync",
    "ApiError": "stele.errors",
    "AuthenticationError": "stele.errors",
    "CommitFailedError": "stele.errors",
    "ConfigResource": "stele.admin.descriptions",
    "Consumer": "stele.sync",
    "ConsumerRecord": "stele.records",
    "ErrorCode": "stele.errors",
    "Expiry": "stele.topic_view.view",
    "FencedInstanceError": "stele.errors",
    "LogTruncationError": "stele.errors",
    "GroupMetadata": "stele.records",
    "NewTopic": "stele.admin.descriptions",
    "OffsetAndMetadata": "stele.records",
    "OffsetAndTimestamp": "stele.records",
    "PreparedTransaction": "stele.producer.transaction_state",
    "Producer": "stele.sync",
    "ProducerFencedError": "stele.errors",
    "QuotaAlteration": "stele.admin.client_quotas",
    "QuotaComponent": "stele.admin.client_quotas",
    "RebalanceListener": "stele.consumer.group.listener",
    "ProducerRecord": "stele.records",
    "RecordMetadata": "stele.records",
    "ScramDeletion": "stele.admin.users",
    "ScramUpsertion": "stele.admin.users",
    "ShareConsumer": "stele.sync",
    "ShareRecord": "stele.records",
    "SteleError": "stele.errors",
    "security_options": "stele.security.properties",
    "TopicPartition": "stele.ids",
    "TopicView": "stele.sync",
    "TransactionAbortableError": "stele.errors",
    "TransactionOutcomeUnknownError": "stele.errors",
    "UnreadableBatchError": "stele.errors",
    "WakeupError": "stele.errors",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list of names

__getattr__ = lazy_names(__name__, _HOMES)
