"""Measurements, and what is made of their results. Not installed: they are run from a clone of the repository."""
