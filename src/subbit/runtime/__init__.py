"""Rounds, engines and runs."""
