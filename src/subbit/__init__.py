"""subbit: federated fine-tuning below one bit per parameter, both ways."""
