"""The arena: jobs that every method runs with the same chance, each setting chosen without the test set."""
