"""The frozen weights that a method masks, if they are not the module's own: drawn again as in the run.

Some methods rescale or redraw the frozen weights (`fedmask` with its default `weights`). These follow from the base,
the method's parameters and a few numbers of the run, so a mask file stores those instead of the weights.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from subbit.core.errors import FrameError, SubbitError
from subbit.core.pieces import Tables, as_words, flattened
from subbit.data.form import Form, TensorForm
from subbit.methods.method import Method
from subbit.methods.names import find_method
from subbit.models import FlatModel
from subbit.models.task import Task
from subbit.runtime.workplace import Workplace

NUMBERS = ("classes", "seed", "rounds", "clients", "participants")


def frozen_weights(method: Method[Any]) -> Tensor:
    """The weights under the method's masks, for all selected places."""
    frozen: Tensor = getattr(getattr(method, "map", None), "frozen", method.task.flat.initial)
    return frozen


def describe_preparation(workplace: Workplace) -> str | None:
    """What `prepared_weights` needs, as JSON; None if the base's own weights are masked."""
    method = workplace.method("main")
    task = method.task
    if torch.equal(frozen_weights(method), task.flat.initial):
        return None
    steps = {
        "method": workplace.settings.run.method,
        "parameters": as_words(workplace.settings.parameters),
        "pretrained": task.pretrained,
        "input_shape": task.form.single.shape,
        "input_type": str(task.form.single.dtype).removeprefix("torch."),
        **{name: getattr(task, name) for name in NUMBERS},
    }
    return json.dumps(steps)


def prepared_weights(preparation: str, flat: FlatModel) -> Tensor:
    try:
        steps = dict(json.loads(preparation))
        method = find_method(str(steps["method"]))
        words = flattened(dict(steps["parameters"]))
        parameters = Tables(method.Parameters, words).build(words)
        numbers: dict[str, Any] = {name: int(steps[name]) for name in NUMBERS}
        dtypes = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}
        inputs = TensorForm(dtypes[steps["input_type"]], tuple(int(side) for side in steps["input_shape"]))
        task = Task(
            flat=flat,
            pretrained=bool(steps["pretrained"]),
            form=Form((("", inputs),), TensorForm(torch.int64, ())),
            **numbers,
        )
        return frozen_weights(method(parameters, task))
    except (SubbitError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise FrameError("value", f"the frozen weights that the file names cannot be drawn: {error}") from None
