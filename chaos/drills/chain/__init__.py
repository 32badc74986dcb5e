"""A chain of transactions: a source, two hops that consume, transform and produce, and a sink."""
