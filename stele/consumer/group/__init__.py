"""Members of consumer groups.

``membership`` is a member of the classic protocol, ``assignors`` share partitions, and
``consumer_protocol`` has the bytes of both. ``reconciling`` is a member of the consumer protocol.
``coordinator`` sends requests to the group's coordinator. ``member`` and ``reconciling_member``
carry out the steps of a membership between an application's polls, and ``group`` those within them.
"""
