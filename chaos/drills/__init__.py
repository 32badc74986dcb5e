"""Failover drills: a workload, a fault, the recovery, and a verdict from what was recorded."""
