"""Administration of topics, configs, replicas, voters and features; see ``stele.admin.admin``."""
