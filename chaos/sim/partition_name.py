"""A partition, as laws and work name it."""

PartitionName = tuple[str, int]
"""The topic and the number."""
