"""How a client trains in its turn: optimiser, schedule, regulariser, privacy, early stopping."""
