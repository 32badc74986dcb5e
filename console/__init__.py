"""``stele console``: a web page for a cluster. README.md has its invariants."""
