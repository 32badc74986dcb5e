"""A compacted topic as a local dictionary.

``entries`` (pure) holds the keys and knows when each ends; ``view`` follows the topic.
"""
