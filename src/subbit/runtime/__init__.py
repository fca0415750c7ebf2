"""The round, the engines and the run."""
