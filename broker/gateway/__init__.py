"""What a broker does for thin clients, which speak ``stele.v1.Log`` and know no leaders.

``publishing`` writes for them, ``subscribing`` reads. README.md shows the way of a record.
"""
