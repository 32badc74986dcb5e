"""Wire formats, without IO: record batches, Kafka's protocol (``kafka``), gRPC messages
(``v1``)."""
