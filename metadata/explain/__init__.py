"""The reasons for the state of the cluster, from the history of its metadata. Pure."""
