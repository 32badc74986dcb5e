"""Metrics that clients push (KIP-714): what each client is asked for, and the newest values."""
