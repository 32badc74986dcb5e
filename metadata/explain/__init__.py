"""Why the cluster is as it is, from the history of its metadata. Pure."""
