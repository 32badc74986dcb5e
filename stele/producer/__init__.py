"""Writing records, from the user's call down to the leader.

``producer`` chooses a partition (``partitioner``) and fills batches (``accumulator``); ``sender``
carries them to leaders, in the order and as often as ``idempotence`` says.
"""
