"""Chaos tests of real subbit processes: python -m chaos --help, or make chaos."""
