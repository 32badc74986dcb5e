"""What a broker does for thin clients, which speak ``stele.v1.Log`` and know no leaders.

It is a client of the cluster on their behalf: ``publishing`` with shared producers. The authorizer
is asked for the thin client itself, by the functions of ``broker.service``.
"""
