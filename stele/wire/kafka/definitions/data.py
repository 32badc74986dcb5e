"""The APIs of the data plane: what producers, consumers and followers send to partition leaders."""

TEXT = """\
api 0 Produce 3-13 flexible 9+
request
  transactional_id string?
  acks int16
  timeout_ms int32
  topic_data [TopicProduceData]
    name string @3-12
    topic_id uuid @13+
    partition_data [PartitionProduceData]
      index int32
      records records?
response
  responses [TopicProduceResponse]
    name string @3-12
    topic_id uuid @13+
    partition_responses [PartitionProduceResponse]
      index int32
      error_code int16
      base_offset int64
      log_append_time_ms int64 =-1
      log_start_offset int64 @5+ =-1
      record_errors [BatchIndexAndErrorMessage] @8+
        batch_index int32
        batch_index_error_message string?
      error_message string? @8+
      current_leader LeaderIdAndEpoch @10+ #0
        leader_id int32 =-1
        leader_epoch int32 =-1
  throttle_time_ms int32
  node_endpoints [NodeEndpoint] @10+ #0
    node_id int32
    host string
    port int32
    rack string?

api 1 Fetch 4-18 flexible 12+
request
  cluster_id string? @12+ #0
  replica_id int32 @4-14 =-1
  replica_state ReplicaState @15+ #1
    replica_id int32 =-1
    replica_epoch int64 =-1
  max_wait_ms int32
  min_bytes int32
  max_bytes int32 =2147483647
  isolation_level int8
  session_id int32 @7+
  session_epoch int32 @7+ =-1
  topics [FetchTopic]
    topic string @4-12
    topic_id uuid @13+
    partitions [FetchPartition]
      partition int32
      current_leader_epoch int32 @9+ =-1
      fetch_offset int64
      last_fetched_epoch int32 @12+ =-1
      log_start_offset int64 @5+ =-1
      partition_max_bytes int32
      replica_directory_id uuid @17+ #0
      high_watermark int64 @18+ =9223372036854775807 #1
      producers_after int64 @12+ =-1 #10001
  forgotten_topics_data [ForgottenTopic] @7+
    topic string @7-12
    topic_id uuid @13+
    partitions [int32]
  rack_id string @11+
response
  throttle_time_ms int32
  error_code int16 @7+
  session_id int32 @7+
  responses [FetchableTopicResponse]
    topic string @4-12
    topic_id uuid @13+
    partitions [PartitionData]
      partition_index int32
      error_code int16
      high_watermark int64
      last_stable_offset int64 =-1
      log_start_offset int64 @5+ =-1
      diverging_epoch EpochEndOffset @12+ #0
        epoch int32 =-1
        end_offset int64 =-1
      current_leader LeaderIdAndEpoch @12+ #1
        leader_id int32 =-1
        leader_epoch int32 =-1
      snapshot_id SnapshotId @12+ #2
        end_offset int64 =-1
        epoch int32 =-1
      dropped_end int64 @12+ =-1 #10001
      producers ProducersPart @12+ #10002
        data bytes
        after int64 =-1
      traced TracedBatch @12+ #10003
        base_offset int64
        context string
      aborted_transactions [AbortedTransaction]?
        producer_id int64
        first_offset int64
      preferred_read_replica int32 @11+ =-1
      records records?
  node_endpoints [NodeEndpoint] @16+ #0
    node_id int32
    host string
    port int32
    rack string?

api 2 ListOffsets 1-11 flexible 6+
request
  replica_id int32
  isolation_level int8 @2+
  topics [ListOffsetsTopic]
    name string
    partitions [ListOffsetsPartition]
      partition_index int32
      current_leader_epoch int32 @4+ =-1
      timestamp int64
  timeout_ms int32 @10+
response
  throttle_time_ms int32 @2+
  topics [ListOffsetsTopicResponse]
    name string
    partitions [ListOffsetsPartitionResponse]
      partition_index int32
      error_code int16
      timestamp int64 =-1
      offset int64 =-1
      leader_epoch int32 @4+ =-1

api 23 OffsetForLeaderEpoch 2-4 flexible 4+
request
  replica_id int32 @3+ =-2
  topics [OffsetForLeaderTopic]
    topic string
    partitions [OffsetForLeaderPartition]
      partition int32
      current_leader_epoch int32 =-1
      leader_epoch int32
response
  throttle_time_ms int32
  topics [OffsetForLeaderTopicResult]
    topic string
    partitions [EpochEndOffset]
      error_code int16
      partition int32
      leader_epoch int32 =-1
      end_offset int64 =-1
"""
