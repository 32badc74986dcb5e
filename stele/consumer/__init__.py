"""Reading records.

``consumer`` has the public class, ``assigned`` the partitions that it reads, and ``group`` the
group that decides about them. ``fetcher`` fetches ahead from leaders, ``positions`` hold the
consumer's offsets and the fetched batches, and ``offset_lookup`` finds the offsets to begin with.
"""
