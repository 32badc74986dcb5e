"""Writing records, from the user's call to the partition leader.

``producer`` waits until it may accept a record (``admission``), chooses a partition
(``partitioner``) and fills batches (``accumulator``). ``sender`` sends them to leaders.
``idempotence`` decides their order and repetition.
"""
