"""Programs of others, unmodified, run against a cluster of Stele. Each is compared exactly: counts,
values, offsets."""
