"""Distribution of the gradient of mask scores over positions, and how far clients agree about it.

    python benchmarks/score_gradients.py > benchmarks/results/score-gradients.json     (data: make arena-data)

Uses one batch of each of the first clients of the arena's job vision, at the initial scores and with the head that the
run fits. `docs/sparse-masks.md` shows the numbers (benchmarks/render_sparse_masks.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subbit.arena.jobs import read_job
from subbit.core.randomness import derive_key
from subbit.methods.sparse_masks import SparseMasks
from subbit.runtime.engines import InProcess
from subbit.runtime.problem import build_problem
from subbit.runtime.round import Cohort, ServerState, run_round
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger

JOB = Path(__file__).parent.parent / "experiments" / "arena" / "vision.toml"
METHOD = "sparse-masks:select=last 5 blocks: weights"
CLIENTS, BATCH = 12, 16


def gradients(workplace: Workplace) -> Tensor:
    """[clients, positions]: the gradient of the scores on one batch of each client."""
    method = workplace.method("main")
    assert isinstance(method, SparseMasks)
    flat = method.task.flat
    scores = torch.from_numpy(np.asarray(method.start()["scores"]))
    flat.training_mode()
    found = []
    for client in range(CLIENTS):
        data = workplace.problem.client_data(client)
        batch = data.select(np.arange(min(BATCH, len(data))))
        method.map.network.write(scores, flat.weights, derive_key(0, "gradients", client))
        flat.zero_gradient()
        functional.cross_entropy(flat.module(batch.inputs), batch.labels).backward()
        gradient = torch.zeros_like(scores)
        method.map.network.pull_back(flat.gradient, scores, gradient)
        found.append(gradient)
    return torch.stack(found)


def cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


def main() -> None:
    settings = read_job(JOB).resolve(METHOD, ["workers=1"])
    workplace = Workplace(build_problem(settings.run), settings)
    assert isinstance(workplace.method("main"), SparseMasks)
    state = ServerState("head", 0, workplace.method("head").start())
    cohort = Cohort(workplace.problem.clients_with_data(), quorum=1.0)
    run_round(workplace.method("head"), state, InProcess(workplace, 1), Ledger(), cohort)
    workplace.attach("main")
    workplace.write_head(np.asarray(state.method["head"]))
    each = gradients(workplace)
    energy = each.square().sort(dim=1, descending=True).values.mean(dim=0)
    share = energy.cumsum(0) / energy.sum()
    one, other = each[: CLIENTS // 2].mean(dim=0), each[CLIENTS // 2 :].mean(dim=0)
    largest = one.abs().topk(one.numel() // 100).indices
    agreeing = (torch.sign(one[largest]) == torch.sign(other[largest])).float().mean()
    result = {
        "job": JOB.stem,
        "run": METHOD,
        "places": one.numel(),
        "clients": CLIENTS,
        "energy_of_largest": {str(part): float(share[int(part * len(share))]) for part in (0.001, 0.01, 0.1)},
        "cosine_of_halves": cosine(one, other),
        "cosine_of_halves_of_signs": cosine(torch.sign(one), torch.sign(other)),
        "sign_agreement_of_largest_hundredth": float(agreeing),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
