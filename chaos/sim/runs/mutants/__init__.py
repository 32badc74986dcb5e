"""Planted bugs: known mistakes, one at a time in a copy of the source, that runs must notice."""
