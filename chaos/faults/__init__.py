"""Faults of computers for nodes on this machine: disks, networks, clocks."""
