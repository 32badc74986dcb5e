"""The APIs of the consumer group protocol (KIP-848)."""

TEXT = """\
api 68 ConsumerGroupHeartbeat 0-1 flexible 0+
request
  group_id string
  member_id string
  member_epoch int32
  instance_id string?
  rack_id string?
  rebalance_timeout_ms int32 =-1
  subscribed_topic_names [string]?
  subscribed_topic_regex string? @1+
  server_assignor string?
  topic_partitions [TopicPartitions]?
    topic_id uuid
    partitions [int32]
response
  throttle_time_ms int32
  error_code int16
  error_message string?
  member_id string?
  member_epoch int32
  heartbeat_interval_ms int32
  assignment Assignment?
    topic_partitions [TopicPartitions]
      topic_id uuid
      partitions [int32]

api 69 ConsumerGroupDescribe 0-1 flexible 0+
request
  group_ids [string]
  include_authorized_operations bool
response
  throttle_time_ms int32
  groups [DescribedGroup]
    error_code int16
    error_message string?
    group_id string
    group_state string
    group_epoch int32
    assignment_epoch int32
    assignor_name string
    members [Member]
      member_id string
      instance_id string?
      rack_id string?
      member_epoch int32
      client_id string
      client_host string
      subscribed_topic_names [string]
      subscribed_topic_regex string?
      assignment Assignment
        topic_partitions [TopicPartitions]
          topic_id uuid
          topic_name string
          partitions [int32]
      target_assignment Assignment
        topic_partitions [TopicPartitions]
          topic_id uuid
          topic_name string
          partitions [int32]
      member_type int8 @1+ =-1
    authorized_operations int32 =-2147483648
"""
