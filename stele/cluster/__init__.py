"""What producer, consumer and administration share: leaders, requests to them, waiting.

``view`` knows brokers, topics and leaders. ``leader_requests`` carries streams of requests to
leaders. ``leader_questions`` sends single requests and repeats them until they are answered.
"""
