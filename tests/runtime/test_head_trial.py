"""A head that is to be fitted must be the layer that gives the outputs: any other one would be ruined in silence."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from subbit.core.errors import ModelError
from subbit.runtime.trial import try_job
from tests.problems import digits_problem, settings


class Backwards(nn.Module):
    """Registers its last layer first."""

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.out, self.hidden = nn.Linear(width, 10), nn.Linear(64, width)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.out(self.hidden(inputs.flatten(1).float() / 255).relu())
        return output


class Named(nn.Module):
    """A body and a head called so."""

    def __init__(self, behind: Any = None, tied: bool = False, calls: int = 1) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 64 if tied else 10), nn.Linear(64 if tied else 10, 64 if tied else 10)
        if tied:
            self.head.weight = self.body.weight
        self.behind, self.calls, self.tied = behind or (lambda logits: logits), calls, tied

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.body(inputs.flatten(1).float() / 255).relu()
        for _ in range(self.calls):
            hidden = self.head(hidden)
        output: Tensor = self.behind(hidden)[:, :10]
        return output


@pytest.mark.parametrize("head", ["lda", "probe"])
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Backwards(), "'hidden' gives is not what the module gives"),
        (Backwards(32), "'hidden' gives is not what the module gives"),
        (Named(tied=True), "'head' is that of 'body.weight' too"),
        (Named(calls=0), "calls its head 'head' 0 times"),
        (Named(calls=2), "calls its head 'head' 2 times"),
        (Named(behind=lambda logits: -logits), "'head' gives is not what the module gives"),
    ],
)
def test_a_layer_that_does_not_give_the_outputs_is_not_fitted(module: nn.Module, said: str, head: str) -> None:
    with pytest.raises(ModelError, match=said):
        try_job(digits_problem(module), settings(method="fedavg", head=head))


@pytest.mark.parametrize("behind", [None, lambda logits: logits.log_softmax(-1), lambda logits: 3 * logits])
def test_what_keeps_the_order_of_the_classes_may_follow(behind: Any) -> None:
    try_job(digits_problem(Named(behind=behind)), settings(method="fedavg", head="lda"))


def test_a_head_that_is_kept_may_be_anywhere() -> None:
    try_job(digits_problem(Backwards()), settings(method="fedavg", head="keep"))


def test_a_head_whose_weight_is_computed_is_refused() -> None:
    module = Named()
    module.head = nn.utils.parametrizations.weight_norm(module.head)
    with pytest.raises(ModelError, match=r"computes its weight from .*original0"):
        try_job(digits_problem(module), settings(method="fedavg", head="lda"))
