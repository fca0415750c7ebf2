"""A FlowerTune-style app: LoRA adapters under federated averaging."""
