"""Administration of topics, configs, replicas, voters, features: ``stele.admin.admin``."""
