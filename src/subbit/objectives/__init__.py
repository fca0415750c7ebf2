"""Objectives: what a batch's loss is, and how a network is scored."""

from subbit.objectives.objective import OBJECTIVES, Objective, find_objective, logits_of

__all__ = ["OBJECTIVES", "Objective", "find_objective", "logits_of"]
