"""Stele as a PySpark data source.

    import stele.spark

    stele.spark.register(session)
    frame = (
        session.read.format("stele")
        .option("bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders")
        .load()
    )

Columns and options have the names of Spark's own Kafka source.
"""

from stele.spark.source import SCHEMA, SteleDataSource, register

__all__ = ["SCHEMA", "SteleDataSource", "register"]
