"""The client's security: what its connections are protected with, and how it says who it is."""
