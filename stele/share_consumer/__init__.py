"""Members of share groups (KIP-932): membership, share sessions with partition leaders, and what
became of records.

``membership`` and ``session`` are pure. ``member`` and ``leader`` carry them out.
"""
