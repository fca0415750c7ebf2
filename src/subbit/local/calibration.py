"""Local training on a client's own mix of classes, without learning that mix.

A client that has only cats learns to say "cat". Let c have the share q_c of the client's examples, and p_c of all. If
p(x | c) is the same everywhere, the client's own posterior is that of all clients times q_c / p_c, up to a factor. So

    loss = cross entropy of (logits + log(q_c / p_c))

has the same minimum on every client, whatever its mix: the term explains the mix, and the network need not. (Logit
adjustment: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021. In federated learning: Zhang et al.,
"Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022.) It is for one network for all
clients; a personal one should know its client's mix.

The shares p_c come with the fitted head. Where no head is fitted nobody knows them. To take them as equal would teach
all clients that rare classes are frequent. So the classes that a client has are then left as they are, and only those
that it lacks are taken for rare there: it does not learn that they do not exist. (As FedRS: Li, Zhan, "Federated
learning with restricted softmax for label distribution non-IID data", KDD 2021, with a factor instead of leaving them
out.)

What is left to learn for a client is at most the entropy of its mix: one with a single class knows nothing of what
tells classes apart, and its gradients are next to nothing. Adam makes steps of full length of them all the same. So the
change of a client counts by its `diversity`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from subbit.data.examples import Data, Examples
from subbit.models.task import Task
from subbit.objectives.objective import logits_of

UNSEEN = 0.1
"""Examples of each class that are counted besides: a class that a client does not have may still be rare there."""


def class_shift(labels: Tensor, classes: int) -> Tensor:
    """log(q_c C) for every class.

    >>> [round(each, 3) for each in class_shift(torch.tensor([0, 0, 0, 1]), 2).exp().tolist()]
    [1.476, 0.524]
    """
    counts = torch.bincount(labels.reshape(-1), minlength=classes).float() + UNSEEN
    return torch.log(counts / counts.sum() * len(counts))


def diversity(labels: Tensor, classes: int) -> float:
    """The entropy of the client's mix of classes, as a share of that of all classes in equal parts.

    >>> round(diversity(torch.tensor([0, 0, 1, 1]), 4), 3), diversity(torch.tensor([2, 2]), 4)
    (0.5, 0.0)
    """
    shares = torch.bincount(labels.reshape(-1), minlength=classes).double()
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * shares.log()).sum()) / math.log(max(classes, len(shares), 2)) + 0.0


class Calibrated:
    """The loss of a batch with logits that account for the client's own mix of classes."""

    def __init__(self, task: Task, labels: Tensor) -> None:
        self.task = task
        self.diversity = diversity(labels, task.classes)
        shift, shares = class_shift(labels, task.classes), task.log_shares
        if len(shares) == len(shift) and not bool(shares.isnan().any()):
            shift = shift - shares
        else:
            present = torch.bincount(labels.reshape(-1), minlength=len(shift)) > 0
            shift = torch.where(present, 0.0, shift.clamp(max=0.0))
        self.shift = shift.to(task.flat.device)

    @classmethod
    def of(cls, task: Task, data: Data) -> Calibrated | None:
        """None where examples do not have one class each."""
        labels = data.labels
        return cls(task, labels) if task.objective.labels_are_classes and labels is not None and len(labels) else None

    def __call__(self, batch: Examples) -> Tensor:
        logits = logits_of(self.task.outputs(batch))
        more = logits.shape[1] - len(self.shift)  # Of a module with more outputs than the data has classes.
        shift = pad(self.shift, (0, more), value=float(self.shift.min())) if more > 0 else self.shift
        return self.task.objective.loss(logits + shift, batch)
