"""Experiment trackers that a run can write to: TensorBoard, MLflow, Weights & Biases."""
