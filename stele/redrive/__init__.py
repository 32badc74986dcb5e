"""Dead letters of a share group on their way back to the topics that they came from.

``letters`` and ``progress`` are pure. ``redrive`` reads, sends and commits.
"""
