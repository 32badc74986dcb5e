"""Formats, without IO: record batches, Kafka's protocol (``kafka``), gRPC's messages (``v1``)."""
