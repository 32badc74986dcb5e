"""What a broker does for thin clients, which speak ``stele.v1.Log`` and know no leaders.

It is a client of the cluster on their behalf: ``publishing`` has shared producers, ``subscribing``
a consumer for each stream. The authorizer is asked for the thin client itself.
"""
