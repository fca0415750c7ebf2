"""`subbit bench engine`: the simulation engine against plain PyTorch, Flower and pfl, in one run on one machine."""
