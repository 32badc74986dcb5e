"""Known ways to get it wrong, planted one at a time in a copy of the source: does a run notice?"""
