"""Benchmarks, and scripts that render their results. Not installed: run them from a clone of the repository."""
