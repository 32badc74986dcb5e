"""The APIs about the cluster: brokers, metadata, topics and their creation and deletion."""

TEXT = """\
api 18 ApiVersions 0-4 flexible 3+
request
  client_software_name string @3+
  client_software_version string @3+
response
  error_code int16
  api_keys [ApiVersion]
    api_key int16
    min_version int16
    max_version int16
  throttle_time_ms int32 @1+
  supported_features [SupportedFeatureKey] @3+ #0
    name string
    min_version int16
    max_version int16
  finalized_features_epoch int64 @3+ =-1 #1
  finalized_features [FinalizedFeatureKey] @3+ #2
    name string
    max_version_level int16
    min_version_level int16
  zk_migration_ready bool @3+ #3

api 3 Metadata 0-13 flexible 9+
request
  topics [MetadataRequestTopic]?1+
    topic_id uuid @10+
    name string?10+
  allow_auto_topic_creation bool @4+ =true
  include_cluster_authorized_operations bool @8-10
  include_topic_authorized_operations bool @8+
response
  throttle_time_ms int32 @3+
  brokers [MetadataResponseBroker]
    node_id int32
    host string
    port int32
    rack string? @1+
  cluster_id string? @2+
  controller_id int32 @1+ =-1
  topics [MetadataResponseTopic]
    error_code int16
    name string?12+
    topic_id uuid @10+
    is_internal bool @1+
    partitions [MetadataResponsePartition]
      error_code int16
      partition_index int32
      leader_id int32
      leader_epoch int32 @7+ =-1
      replica_nodes [int32]
      isr_nodes [int32]
      offline_replicas [int32] @5+
    topic_authorized_operations int32 @8+ =-2147483648
  cluster_authorized_operations int32 @8-10 =-2147483648
  error_code int16 @13+
  metadata_offset int64 @9+ =-1 #10000

api 10 FindCoordinator 0-6 flexible 3+
request
  key string @0-3
  key_type int8 @1+
  coordinator_keys [string] @4+
response
  throttle_time_ms int32 @1+
  error_code int16 @0-3
  error_message string? @1-3
  node_id int32 @0-3
  host string @0-3
  port int32 @0-3
  coordinators [Coordinator] @4+
    key string
    node_id int32
    host string
    port int32
    error_code int16
    error_message string?

api 60 DescribeCluster 0-2 flexible 0+
request
  include_cluster_authorized_operations bool
  endpoint_type int8 @1+ =1
  include_fenced_brokers bool @2+
response
  throttle_time_ms int32
  error_code int16
  error_message string?
  endpoint_type int8 @1+ =1
  cluster_id string
  controller_id int32 =-1
  brokers [DescribeClusterBroker]
    broker_id int32
    host string
    port int32
    rack string?
    is_fenced bool @2+
  cluster_authorized_operations int32 =-2147483648

api 19 CreateTopics 2-7 flexible 5+
request
  topics [CreatableTopic]
    name string
    num_partitions int32
    replication_factor int16
    assignments [CreatableReplicaAssignment]
      partition_index int32
      broker_ids [int32]
    configs [CreatableTopicConfig]
      name string
      value string?
  timeout_ms int32 =60000
  validate_only bool
response
  throttle_time_ms int32
  topics [CreatableTopicResult]
    name string
    topic_id uuid @7+
    error_code int16
    error_message string?
    topic_config_error_code int16 @5+ #0
    num_partitions int32 @5+ =-1
    replication_factor int16 @5+ =-1
    configs [CreatableTopicConfigs]? @5+
      name string
      value string?
      read_only bool
      config_source int8 =-1
      is_sensitive bool

api 20 DeleteTopics 1-6 flexible 4+
request
  topics [DeleteTopicState] @6+
    name string?
    topic_id uuid
  topic_names [string] @1-5
  timeout_ms int32
response
  throttle_time_ms int32
  responses [DeletableTopicResult]
    name string?6+
    topic_id uuid @6+
    error_code int16
    error_message string? @5+

api 37 CreatePartitions 0-3 flexible 2+
request
  topics [CreatePartitionsTopic]
    name string
    count int32
    assignments [CreatePartitionsAssignment]?
      broker_ids [int32]
  timeout_ms int32
  validate_only bool
response
  throttle_time_ms int32
  results [CreatePartitionsTopicResult]
    name string
    error_code int16
    error_message string?

api 32 DescribeConfigs 1-4 flexible 4+
request
  resources [DescribeConfigsResource]
    resource_type int8
    resource_name string
    configuration_keys [string]?
  include_synonyms bool
  include_documentation bool @3+
response
  throttle_time_ms int32
  results [DescribeConfigsResult]
    error_code int16
    error_message string?
    resource_type int8
    resource_name string
    configs [DescribeConfigsResourceResult]
      name string
      value string?
      read_only bool
      config_source int8 =-1
      is_sensitive bool
      synonyms [DescribeConfigsSynonym]
        name string
        value string?
        source int8
      config_type int8 @3+
      documentation string? @3+

api 45 AlterPartitionReassignments 0-1 flexible 0+
request
  timeout_ms int32 =60000
  allow_replication_factor_change bool @1+ =true
  topics [ReassignableTopic]
    name string
    partitions [ReassignablePartition]
      partition_index int32
      replicas [int32]?
response
  throttle_time_ms int32
  allow_replication_factor_change bool @1+ =true
  error_code int16
  error_message string?
  responses [ReassignableTopicResponse]
    name string
    partitions [ReassignablePartitionResponse]
      partition_index int32
      error_code int16
      error_message string?

api 46 ListPartitionReassignments 0-0 flexible 0+
request
  timeout_ms int32 =60000
  topics [ListPartitionReassignmentsTopics]?
    name string
    partition_indexes [int32]
response
  throttle_time_ms int32
  error_code int16
  error_message string?
  topics [OngoingTopicReassignment]
    name string
    partitions [OngoingPartitionReassignment]
      partition_index int32
      replicas [int32]
      adding_replicas [int32]
      removing_replicas [int32]

api 57 UpdateFeatures 0-2 flexible 0+
request
  timeout_ms int32 =60000
  feature_updates [FeatureUpdateKey]
    feature string
    max_version_level int16
    allow_downgrade bool @0
    upgrade_type int8 @1+ =1
  validate_only bool @1+
response
  throttle_time_ms int32
  error_code int16
  error_message string?
  results [UpdatableFeatureResult] @0-1
    feature string
    error_code int16
    error_message string?
"""
