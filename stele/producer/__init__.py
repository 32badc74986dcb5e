"""Writing records, from the user's call to the partition leader.

``producer`` chooses a partition (``partitioner``) and fills batches (``accumulator``). ``sender``
sends them to leaders. ``idempotence`` decides their order and repetition.
"""
