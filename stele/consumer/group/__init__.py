"""Members of consumer groups.

``membership`` says what a member of the classic protocol does next, ``assignors`` share partitions
and ``consumer_protocol`` has the bytes of both. ``reconciling`` is a member of the consumer
protocol. ``coordinator`` sends requests to the group's coordinator, ``member`` and
``reconciling_member`` carry out what a membership says between an application's polls, and
``group`` what it says within them.
"""
