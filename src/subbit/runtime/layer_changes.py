"""What training did to each tensor, from the first and the last state of a run: density of a mask, or relative change.

Two networks are written one after the other, and one copy of the trained vector is kept in between.
"""

from __future__ import annotations

import logging

from torch import Tensor

from subbit.core.blame import one_line
from subbit.core.randomness import derive_key
from subbit.runtime.round import ServerState
from subbit.runtime.side_files import Layer, Layers
from subbit.runtime.workplace import Workplace

LIKELIEST = "thresholded"
"""Of the networks of a mask that is drawn: the one whose weights are kept or not."""
log = logging.getLogger("subbit")


def layer_changes(workplace: Workplace, state: ServerState) -> Layers | None:
    """None where it does not apply: personal networks, or a run without a round. Changes the module's weights."""
    method, run = workplace.method("main"), workplace.settings.run
    if method.personal or not state.next_round:
        return None
    is_mask = hasattr(getattr(method, "map", None), "frozen")
    network = LIKELIEST if is_mask and LIKELIEST in method.networks else method.primary_network
    key, flat = derive_key(run.seed, "evaluation", run.rounds), method.task.flat
    try:
        # A method starts from what is in the module: the network before the main phase, with its fitted head.
        workplace.write_network(None, network, key, state.head)
        workplace.write_network(method.start(), network, key, state.head)
        before = flat.weights.detach().clone()
        workplace.write_network(state.method, network, key, state.head)
    except Exception as error:  # A finished run does not fail because of a method that cannot show its start.
        log.warning("layers.json is left out: %s", one_line(error))
        return None
    views = zip(flat.template.names, flat.template.views(before), flat.template.views(flat.weights), strict=True)
    describe = _of_mask if is_mask else _of_values
    return Layers(
        kind="mask" if is_mask else "change",
        network=network,
        layers=tuple(describe(name, first, last.detach()) for name, first, last in views),
    )


def _of_mask(name: str, before: Tensor, after: Tensor) -> Layer:
    kept, flipped = after != 0, (after != 0) != (before != 0)
    return Layer(
        name=name,
        size=after.numel(),
        density=float(kept.double().mean()),
        flips=float(flipped.double().mean()),
    )


def _of_values(name: str, before: Tensor, after: Tensor) -> Layer:
    length = float(before.double().norm())
    change = float((after.double() - before.double()).norm()) / length if length else None
    return Layer(name=name, size=after.numel(), change=change)
