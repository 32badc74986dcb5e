"""What producer, consumer and administration share: who leads what, how a leader is asked, waiting.

``view`` knows brokers, topics and leaders. ``leader_requests`` carries streams of requests to
leaders, ``leader_questions`` single ones that are repeated until they are answered.
"""
