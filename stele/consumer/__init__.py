"""Reading records.

``consumer`` is the face; ``fetcher`` fetches ahead from leaders; ``positions`` keep what was
fetched and where the consumer stands; ``offset_lookup`` finds where it starts.
"""
