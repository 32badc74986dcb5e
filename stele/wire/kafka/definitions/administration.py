"""The APIs for administrators: configurations, partitions, records, replicas, elections,
brokers."""

TEXT = """\
api 21 DeleteRecords 0-2 flexible 2+
request
  topics [DeleteRecordsTopic]
    name string
    partitions [DeleteRecordsPartition]
      partition_index int32
      offset int64
  timeout_ms int32
response
  throttle_time_ms int32
  topics [DeleteRecordsTopicResult]
    name string
    partitions [DeleteRecordsPartitionResult]
      partition_index int32
      low_watermark int64
      error_code int16

api 33 AlterConfigs 0-2 flexible 2+
request
  resources [AlterConfigsResource]
    resource_type int8
    resource_name string
    configs [AlterableConfig]
      name string
      value string?
  validate_only bool
response
  throttle_time_ms int32
  responses [AlterConfigsResourceResponse]
    error_code int16
    error_message string?
    resource_type int8
    resource_name string

api 34 AlterReplicaLogDirs 1-2 flexible 2+
request
  dirs [AlterReplicaLogDir]
    path string
    topics [AlterReplicaLogDirTopic]
      name string
      partitions [int32]
response
  throttle_time_ms int32
  results [AlterReplicaLogDirTopicResult]
    topic_name string
    partitions [AlterReplicaLogDirPartitionResult]
      partition_index int32
      error_code int16

api 35 DescribeLogDirs 1-4 flexible 2+
request
  topics [DescribableLogDirTopic]?
    topic string
    partitions [int32]
response
  throttle_time_ms int32
  error_code int16 @3+
  results [DescribeLogDirsResult]
    error_code int16
    log_dir string
    topics [DescribeLogDirsTopic]
      name string
      partitions [DescribeLogDirsPartition]
        partition_index int32
        partition_size int64
        offset_lag int64
        is_future_key bool
    total_bytes int64 @4+ =-1
    usable_bytes int64 @4+ =-1

api 43 ElectLeaders 0-2 flexible 2+
request
  election_type int8 @1+
  topic_partitions [TopicPartitions]?
    topic string
    partitions [int32]
  timeout_ms int32 =60000
response
  throttle_time_ms int32
  error_code int16 @1+
  replica_election_results [ReplicaElectionResult]
    topic string
    partition_result [PartitionResult]
      partition_id int32
      error_code int16
      error_message string?

api 44 IncrementalAlterConfigs 0-1 flexible 1+
request
  resources [AlterConfigsResource]
    resource_type int8
    resource_name string
    configs [AlterableConfig]
      name string
      config_operation int8
      value string?
  validate_only bool
response
  throttle_time_ms int32
  responses [AlterConfigsResourceResponse]
    error_code int16
    error_message string?
    resource_type int8
    resource_name string

api 55 DescribeQuorum 0-2 flexible 0+
request
  topics [TopicRequest]
    topic_name string
    partitions [PartitionRequest]
      partition_index int32
response
  error_code int16
  error_message string? @2+
  topics [TopicData]
    topic_name string
    partitions [PartitionData]
      partition_index int32
      error_code int16
      error_message string? @2+
      leader_id int32
      leader_epoch int32
      high_watermark int64
      current_voters [ReplicaState]
        replica_id int32
        replica_directory_id uuid @2+
        log_end_offset int64
        last_fetch_timestamp int64 @1+ =-1
        last_caught_up_timestamp int64 @1+ =-1
      observers [ReplicaState]
        replica_id int32
        replica_directory_id uuid @2+
        log_end_offset int64
        last_fetch_timestamp int64 @1+ =-1
        last_caught_up_timestamp int64 @1+ =-1
  nodes [Node] @2+
    node_id int32
    listeners [Listener]
      name string
      host string
      port uint16

api 61 DescribeProducers 0-0 flexible 0+
request
  topics [TopicRequest]
    name string
    partition_indexes [int32]
    topic_id uuid #10000
  producer_id int64 =-1 #10000
  current_leader_epoch int32 =-1 #10001
response
  throttle_time_ms int32
  topics [TopicResponse]
    name string
    partitions [PartitionResponse]
      partition_index int32
      error_code int16
      error_message string?
      active_producers [ProducerState]
        producer_id int64
        producer_epoch int32
        last_sequence int32 =-1
        last_timestamp int64 =-1
        coordinator_epoch int32
        current_txn_start_offset int64 =-1
        batches [ProducerBatch] #10000
          base_sequence int32
          last_sequence int32
          base_offset int64
      high_watermark int64 =-1 #10000

api 64 UnregisterBroker 0-0 flexible 0+
request
  broker_id int32
response
  throttle_time_ms int32
  error_code int16
  error_message string?

api 71 GetTelemetrySubscriptions 0-0 flexible 0+
request
  client_instance_id uuid
response
  throttle_time_ms int32
  error_code int16
  client_instance_id uuid
  subscription_id int32
  accepted_compression_types [int8]
  push_interval_ms int32
  telemetry_max_bytes int32
  delta_temporality bool
  requested_metrics [string]

api 72 PushTelemetry 0-0 flexible 0+
request
  client_instance_id uuid
  subscription_id int32
  terminating bool
  compression_type int8
  metrics bytes
response
  throttle_time_ms int32
  error_code int16

api 74 ListConfigResources 0-1 flexible 0+
request
  resource_types [int8] @1+
response
  throttle_time_ms int32
  error_code int16
  config_resources [ConfigResource]
    resource_name string
    resource_type int8 @1+ =16

api 75 DescribeTopicPartitions 0-0 flexible 0+
request
  topics [TopicRequest]
    name string
  response_partition_limit int32 =2000
  cursor Cursor?
    topic_name string
    partition_index int32
response
  throttle_time_ms int32
  topics [DescribeTopicPartitionsResponseTopic]
    error_code int16
    name string?
    topic_id uuid
    is_internal bool
    partitions [DescribeTopicPartitionsResponsePartition]
      error_code int16
      partition_index int32
      leader_id int32
      leader_epoch int32 =-1
      replica_nodes [int32]
      isr_nodes [int32]
      eligible_leader_replicas [int32]?
      last_known_elr [int32]?
      offline_replicas [int32]
    topic_authorized_operations int32 =-2147483648
  next_cursor Cursor?
    topic_name string
    partition_index int32
"""
