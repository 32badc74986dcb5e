"""Kafka's protocol error codes, and the exceptions that carry them.

Their numbers, names and whether they are retriable:
https://kafka.apache.org/protocol#protocol_error_codes
"""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """An error code of Kafka's protocol. ``UNKNOWN_SERVER_ERROR`` always means a bug or a broken
    disk.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, as Kafka's clients judge it."""
        return self in _RETRIABLE

    @property
    def is_denial(self) -> bool:
        """Whether the caller lacks a right, which an administrator may give."""
        return self in _DENIALS


_DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class SteleError(Exception):
    """The base class of all exceptions that Stele raises on purpose."""


class ApiError(SteleError):
    """The cluster refused a request. ``code`` is Kafka's reason, ``message`` says it in words.

    >>> try:
    ...     consumer.commit()
    ... except ApiError as error:
    ...     print(error.code.name, error.message, error.code.retriable)
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message


class AuthenticationError(ApiError):
    """Client and broker do not accept each other, and trying again does not help: the login is
    refused, or TLS fails because of a certificate, a file or the security protocol.

    The text names the file, the host name, the date or the option. Java's clients call this
    ``AuthenticationException``.
    """


class TlsError(AuthenticationError):
    """The client has reached no broker of the cluster, because TLS fails or because the port has
    another security protocol.

    A client that has reached the cluster before does not raise this: brokers exchange their
    certificates, so it tries again until the time limit of the call.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)

    def __str__(self) -> str:
        return self.message  # Kafka has no code for TLS, and the code's name would mislead


class OutcomeUnknownError(ApiError):
    """It is not known whether a change took effect, or still will.

    The same call with ``request_id=error.request_id`` finds out: it takes effect at most once.
    """

    def __init__(self, message: str, request_id: bytes = b"", cause: str = "") -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)
        self.request_id = request_id
        self.cause = cause or message

    @classmethod
    def because(cls, cause: str, request_id: bytes = b"") -> OutcomeUnknownError:
        """An error whose message adds to the cause what the caller can do."""
        if request_id:
            way_out = f"repeat the request with the id {request_id.hex()} to find out"
        else:
            way_out = "check the state before you try again"
        message = f"{cause}; it may or may not have taken effect: {way_out}"
        return cls(message, request_id, cause)


class ConfigError(SteleError):
    """An option or an argument has an invalid value. The text names it, its value and what is
    allowed.
    """


class ClosedError(SteleError):
    """The client was closed, or had failed, before the call or during it."""


class WakeupError(SteleError):
    """Another thread, or a signal handler, has called the consumer's ``wakeup``."""


class UnreachableError(SteleError):
    """No broker could be reached in time. The text names the brokers that were tried and the last
    cause.
    """


class BufferFullError(SteleError):
    """The producer's buffer is full. Wait for deliveries, use a call that waits itself, or raise
    ``buffer_memory``.
    """


class DeliveryTimeoutError(ApiError):
    """A record was not acknowledged within ``delivery_timeout_ms``.

    ``maybe_written``: True if an attempt had no answer, so that the record may have been written.
    False if no attempt can have succeeded, so that the record can safely be sent again.
    """

    def __init__(self, message: str, *, maybe_written: bool) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)
        self.maybe_written = maybe_written


class SequenceError(ApiError):
    """The broker's state of an idempotent producer contradicts the producer's own.

    Acknowledged records may be missing, or another instance has fenced this one. The producer sends
    nothing more: make another one.
    """


class TransactionStateError(SteleError):
    """A call does not fit the state of the producer's transaction. Nothing was changed. The text
    says what the state is and which call comes next."""


class TransactionAbortableError(ApiError):
    """The transaction cannot be committed, and must be aborted. ``with producer.transaction()`` has
    aborted it already. Afterwards the producer can begin another one, with the same work.
    """


class TransactionAbortedError(SteleError):
    """A record was not written, or does not count, because its transaction was aborted."""


class TransactionFatalError(ApiError):
    """The producer can do nothing more with its transactional id. Close it. What it had not
    committed is aborted, or will be.
    """


class ProducerFencedError(TransactionFatalError):
    """Another producer uses the transactional id by now, or the transaction was open for longer
    than ``transaction_timeout_ms`` and was aborted."""


class TransactionOutcomeUnknownError(OutcomeUnknownError):
    """A commit had no answer in time. It may have taken effect, or may still do so.

    While the producer lives, ``commit_transaction`` asks again. Afterwards
    ``Admin.describe_transactions`` shows the transaction that the coordinator knows. If its
    producer id is ``producer_id`` and its epoch is ``producer_epoch`` + 1, its state is the
    outcome.
    """

    def __init__(
        self, message: str, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> None:
        super().__init__(message)
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class OffsetOutOfRangeError(ApiError):
    """A consumer's position is outside of the log, and ``auto_offset_reset`` is ``none``. Each poll
    raises it until a ``seek``.
    """

    def __init__(self, topic: str, partition: int, offset: int, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class LogTruncationError(ApiError):
    """Records that a consumer has read have vanished, and ``auto_offset_reset`` is ``none``.

    An unclean election or a lost disk takes records away that were committed. Up to
    ``diverging_offset`` the partition's log is the one that was read: a seek to it goes on there.
    """

    def __init__(self, topic: str, partition: int, offset: int, diverging_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the records of {topic}-{partition} from {diverging_offset} to {offset} that were "
            f"read have vanished from the log; seek to {diverging_offset} to go on there, or set "
            "auto_offset_reset",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset


class CommitFailedError(ApiError):
    """Offsets were not committed.

    Either the group has gone on without this member, or is about to: other members may own the
    partitions, and read the records again. Or the topic that was read was deleted
    (UNKNOWN_TOPIC_ID), and another one may have its name.
    """


class FencedInstanceError(ApiError):
    """Another process uses the same ``group_instance_id``. Only the process that came last is a
    member of the group.
    """

    def __init__(self, instance_id: str) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another process joined the group as group_instance_id={instance_id!r}: give each "
            "process its own",
        )
        self.instance_id = instance_id


class UnreadableBatchError(ApiError):
    """A consumer has come to a record batch that it cannot read.

    Its records are from ``offset`` up to, but not including, ``next_offset``. Each poll raises this
    error until a seek: ``consumer.seek(error.topic, error.partition, error.next_offset)`` skips the
    batch.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, next_offset: int, cause: ApiError
    ) -> None:
        super().__init__(
            cause.code,
            f"the batch at offset {offset} of {topic}-{partition} cannot be read: "
            f"{cause.message or cause.code.name}; seek to {next_offset} to skip it",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class BulkError(ApiError):
    """Some items of one request were refused. ``failed`` has each of them with its error.

    ``code`` is that of the first one. ``succeeded`` has the results of the others.
    """

    def __init__(self, failed: dict[str, ApiError], succeeded: list[object]) -> None:
        first = next(iter(failed.values()))
        super().__init__(first.code, "; ".join(e.message or e.code.name for e in failed.values()))
        self.failed = failed
        self.succeeded = succeeded
