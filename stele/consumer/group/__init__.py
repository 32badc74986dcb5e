"""Members of consumer groups.

``membership`` says what a member of the classic protocol does next, ``assignors`` share partitions
and ``consumer_protocol`` has the bytes of both. ``coordinator`` sends requests to the group's
coordinator, and ``member`` carries out what the membership says between an application's polls.
"""
