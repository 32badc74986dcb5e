"""The APIs of transactions, and of ids for producers."""

TEXT = """\
api 22 InitProducerId 0-6 flexible 2+
request
  transactional_id string?
  transaction_timeout_ms int32
  producer_id int64 @3+ =-1
  producer_epoch int16 @3+ =-1
  enable2_pc bool @6+
  keep_prepared_txn bool @6+
response
  throttle_time_ms int32
  error_code int16
  producer_id int64 =-1
  producer_epoch int16
  ongoing_txn_producer_id int64 @6+ =-1
  ongoing_txn_producer_epoch int16 @6+ =-1
  error_message string? @2+ #10000

api 24 AddPartitionsToTxn 0-5 flexible 3+
request
  transactions [AddPartitionsToTxnTransaction] @4+
    transactional_id string
    producer_id int64
    producer_epoch int16
    verify_only bool
    topics [AddPartitionsToTxnTopic]
      name string
      partitions [int32]
  v3_and_below_transactional_id string @0-3
  v3_and_below_producer_id int64 @0-3
  v3_and_below_producer_epoch int16 @0-3
  v3_and_below_topics [AddPartitionsToTxnTopic] @0-3
    name string
    partitions [int32]
response
  throttle_time_ms int32
  error_code int16 @4+
  results_by_transaction [AddPartitionsToTxnResult] @4+
    transactional_id string
    topic_results [AddPartitionsToTxnTopicResult]
      name string
      results_by_partition [AddPartitionsToTxnPartitionResult]
        partition_index int32
        partition_error_code int16
  results_by_topic_v3_and_below [AddPartitionsToTxnTopicResult] @0-3
    name string
    results_by_partition [AddPartitionsToTxnPartitionResult]
      partition_index int32
      partition_error_code int16

api 25 AddOffsetsToTxn 0-4 flexible 3+
request
  transactional_id string
  producer_id int64
  producer_epoch int16
  group_id string
response
  throttle_time_ms int32
  error_code int16

api 26 EndTxn 0-5 flexible 3+
request
  transactional_id string
  producer_id int64
  producer_epoch int16
  committed bool
response
  throttle_time_ms int32
  error_code int16
  producer_id int64 @5+ =-1
  producer_epoch int16 @5+ =-1
  error_message string? @3+ #10000

api 27 WriteTxnMarkers 1-2 flexible 1+
request
  markers [WritableTxnMarker]
    producer_id int64
    producer_epoch int16
    transaction_result bool
    topics [WritableTxnMarkerTopic]
      name string
      partition_indexes [int32]
    coordinator_epoch int32
    transaction_version int8 @2+
response
  markers [WritableTxnMarkerResult]
    producer_id int64
    topics [WritableTxnMarkerTopicResult]
      name string
      partitions [WritableTxnMarkerPartitionResult]
        partition_index int32
        error_code int16

api 65 DescribeTransactions 0 flexible 0+
request
  transactional_ids [string]
response
  throttle_time_ms int32
  transaction_states [TransactionState]
    error_code int16
    transactional_id string
    transaction_state string
    transaction_timeout_ms int32
    transaction_start_time_ms int64
    producer_id int64
    producer_epoch int16
    topics [TopicData]
      topic string
      partitions [int32]

api 66 ListTransactions 0-2 flexible 0+
request
  state_filters [string]
  producer_id_filters [int64]
  duration_filter int64 @1+ =-1
  transactional_id_pattern string? @2+
response
  throttle_time_ms int32
  error_code int16
  unknown_state_filters [string]
  transaction_states [TransactionState]
    transactional_id string
    producer_id int64
    transaction_state string
"""
