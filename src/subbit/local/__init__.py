"""Local training of a client: optimiser, schedule, regulariser, privacy, early stopping."""
