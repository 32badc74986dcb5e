"""The meaning of every error that Stele answers, in one sentence.

The comments of proto/stele/v1/errors.proto are made from these. An answer without a more precise
message has the sentence as its message.
"""

from __future__ import annotations

from collections.abc import Mapping

from stele.errors import ErrorCode

MEANINGS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "unexpected error; see the node's log",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log begins above this offset, or ends below it",
    ErrorCode.CORRUPT_MESSAGE: "the record batch is damaged: its checksum or its frame is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this node knows no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment: try again",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads this partition: refresh the metadata",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out; it may or may not have taken effect",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker cannot be reached",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the broker has no replica of this partition",
    ErrorCode.MESSAGE_TOO_LARGE: "the record batch is larger than max.message.bytes",
    ErrorCode.NETWORK_EXCEPTION: "the connection broke before the answer came",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading: try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available for this",
    ErrorCode.NOT_COORDINATOR: "another broker is the coordinator: look it up again",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the records fit into no batch of the largest allowed size",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the offsets fit into no batch of the largest size",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "the metadata of an offset has more UTF-16 units than offset.metadata.max.bytes"
    ),
    ErrorCode.ILLEGAL_GENERATION: "the group has gone on to another generation: join again",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members have no assignor in common",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member: join again",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the broker's bounds",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is being rebalanced: join again",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id of this answer",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as it may have",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over this instance id",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member's epoch is not the group's: join again",
    ErrorCode.STALE_MEMBER_EPOCH: "the member has a newer epoch: repeat the request with it",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member uses this instance id: wait for its end",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the coordinator has no such assignor",
    ErrorCode.INVALID_RECORD_STATE: "the member does not have the record: its lock may have ended",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the share session has ended: open another one",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "a request of the share session is missing or repeated",
    ErrorCode.FENCED_STATE_EPOCH: "the offsets of the share group were set anew",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "the broker has as many share sessions as it may",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression is not valid, or not supported",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group still reads the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not a valid topic name, or collides with one",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than min.insync.replicas; nothing was written"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "the batch was written, but fewer replicas are in sync than min.insync.replicas"
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the caller may not do this with the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the caller may not do this with the group",
    ErrorCode.INVALID_TIMESTAMP: "a record's time is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the request or feature is not supported",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of this name already",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not possible",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are not enough brokers for so many replicas",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "these replicas cannot be assigned",
    ErrorCode.INVALID_CONFIG: "the configuration key or its value is not allowed",
    ErrorCode.NOT_CONTROLLER: "this node is not the active controller: ask the one named",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself or lacks something",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format does not support this",
    ErrorCode.POLICY_VIOLATION: "a limit of the cluster forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the producer's batches before this one are missing",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer instance of this producer has taken over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is in another state",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id now",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction.max.timeout.ms does not allow it",
    ErrorCode.CONCURRENT_TRANSACTIONS: "an earlier transaction is still being ended: try again",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "another coordinator has taken over",
    ErrorCode.PRODUCER_FENCED: "another producer uses the transactional id now",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction with these offsets is still open: try again",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction cannot be committed, and must be aborted",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "it was not tried because an earlier step failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk failed or is full, or the log is offline",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "there is no such fetch session: begin a new one",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session is out of step: begin a new one",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no address on the listener that was asked",
    ErrorCode.FENCED_STATE_EPOCH: "the state epoch of the share partition is an old one",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch is an old one: refresh the metadata",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch is newer than this broker knows: try again",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the codec is not supported",
    ErrorCode.STALE_BROKER_EPOCH: "the broker has registered again since",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the leader does not know its high watermark yet: try again",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not in sync or not up",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that could lead is up",
    ErrorCode.ELECTION_NOT_NEEDED: "the wanted leader leads already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "there is no reassignment to cancel",
    ErrorCode.INVALID_RECORD: "the records are not valid",
    ErrorCode.INCONSISTENT_VOTER_SET: "the voters differ from those in the request",
    ErrorCode.INVALID_UPDATE_VERSION: "the data were changed meanwhile: read them again",
    ErrorCode.SNAPSHOT_NOT_FOUND: "there is no such snapshot any more",
    ErrorCode.POSITION_OUT_OF_RANGE: "the snapshot ends before this position",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic of this id",
    ErrorCode.INVALID_RECORD_STATE: "the member does not have the record any more",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the subscription to the client's metrics has changed",
    ErrorCode.TELEMETRY_TOO_LARGE: "the metrics are more than a client may push at once",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process has this broker id and is alive",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker of this id is registered",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the node belongs to another cluster",
    ErrorCode.INELIGIBLE_REPLICA: "a replica may not join the in-sync replicas now",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "this kind of node does not answer for that endpoint type",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "there is no such endpoint type",
    ErrorCode.INVALID_REGISTRATION: "a broker with this registration cannot join",
    ErrorCode.INVALID_VOTER_KEY: "the voter has another directory id",
    ErrorCode.DUPLICATE_VOTER: "it is a voter already",
    ErrorCode.VOTER_NOT_FOUND: "there is no such voter",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the producer's batch was written before",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.UNKNOWN_PRODUCER_ID: "this producer is no longer known",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being reassigned",
    ErrorCode.TOPIC_DELETION_DISABLED: "topics cannot be deleted here",
    ErrorCode.SECURITY_DISABLED: "there is no access control to administrate",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this transactional id may not be used",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the caller may not do this with the cluster",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "a quota is exceeded: try again later",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the listener has no such SASL mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: "the connection does not expect this step of a login now",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the login failed: check user, password and mechanism",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "there are no delegation tokens: delegation.token.secret.key is not set"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "only the owner and the renewers of a delegation token may do this"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "delegation tokens need a login by SASL or a client certificate, and not one by a token"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "the caller may not do this with the delegation token"
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired: create another one",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "the principal is not of the type User",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential is not acceptable",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no such resource",
    ErrorCode.DUPLICATE_RESOURCE: "the request names a resource twice",
    ErrorCode.FEATURE_UPDATE_FAILED: "the feature level could not be changed",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic has another id now",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "a fetch session names topics or their ids, not both",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "there is no such controller",
}


def explain(number: int, message: str | None = None) -> str:
    """``message`` if there is one, otherwise the meaning of the error; "" if there is no error."""
    if message:
        return message
    if number == ErrorCode.NONE:
        return ""
    try:
        code = ErrorCode(number)
    except ValueError:
        return f"error {number}, of a newer version"
    return MEANINGS.get(code, code.name)
