"""The tables of paper 002 next to our results: accuracy against compression, sensitivity, the integrality gap.

Villani, Natale, Mallmann-Trenn: "Trading-off Accuracy and Communication Cost in Federated Learning", 2024. All our
numbers come from run folders, i.e. from real frames and checkpoints; the paper's numbers are quoted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subbit.config.resolve import Settings, resolve, same_job
from subbit.core.errors import RunFolderError
from subbit.core.randomness import derive_key, numpy_generator
from subbit.maps.projection import probabilities
from subbit.methods.method import State
from subbit.methods.zampling import Zampling
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job
from subbit.runtime.summarise import versions
from subbit.runtime.workplace import Workplace
from subbit.wire.frame import HEADER_BYTES

COMPRESSIONS = (1, 2, 4, 8, 16, 32)
PAPER_TABLE_2 = {
    100: ((85.60, 2.16), (82.63, 2.43), (76.83, 2.93), (70.33, 2.98), (62.78, 3.29), (49.43, 3.32)),
    50: ((86.77, 1.76), (81.83, 2.30), (79.28, 2.76), (71.75, 2.94), (59.12, 3.71), (48.76, 3.59)),
    10: ((85.29, 2.20), (81.99, 2.50), (78.70, 2.56), (72.31, 2.90), (64.43, 2.65), (49.99, 2.99)),
    5: ((83.37, 2.42), (78.52, 3.40), (78.73, 2.81), (71.80, 3.17), (62.85, 3.02), (47.90, 3.33)),
    1: ((76.35, 3.21), (71.37, 4.25), (70.05, 3.55), (60.60, 3.49), (55.56, 3.54), (47.48, 3.00)),
}
"""Percent and standard deviation of the mean sampled accuracy, SMALL, by d; columns are `COMPRESSIONS`, m / n."""
PAPER_TABLE_1 = {1: (None, None, 0.95), 8: (256, 8, 0.95), 32: (1024, 32, 0.93)}
"""Client savings, server savings, accuracy, by m / n. The row of 1 is from the text of section 3.2."""
PAPER_TABLE_4: dict[str, dict[str, tuple[float, float, float | None]]] = {
    "0.01": {"continuous": (82.85, 0.13, 0.09), "sampled": (90.29, 3.52e-3, 2.50e-3)},
    "0.1": {"continuous": (81.43, 0.14, None), "sampled": (89.67, 3.04e-3, 2.13e-3)},
    "0.2": {"continuous": (82.42, 0.13, 0.10), "sampled": (89.64, 2.17e-3, 1.52e-3)},
    "all": {"continuous": (20.07, 0.78, 0.55), "sampled": (78.80, 0.17, 0.12)},
}
"""Percent, sensitivity, deviation, by tau and training. "all" is the paper's tau = 0.5: taken literally, tau <= p <= 1
- tau would perturb nothing."""

MNIST = {"method": "zampling", "dataset": "mnist", "head": "keep", "partition": "iid", "batch_size": 128}
TURN = {"clients": 1, "rounds": 1, "codec": "dense", "epochs": 100, "patience": 10}
LOCAL = {**MNIST, **TURN, "model": "mlp-small", "learning_rate": 1e-3}
# With a learning rate that falls to zero, bits without a training signal settle, and draws come close to their mean.
FALLING = {"epochs": 5, "learning_rate": 0.03, "schedule": "cosine"}
TEN = {**MNIST, "model": "mnistfc", "clients": 10, "seed": 1}
FEDERATED = {**TEN, **FALLING, "rounds": 20}
FEDERATED_PAPER = {**TEN, "preset": "paper", "rounds": 100}
"""Epochs, patience, rate and codecs are those of the preset, for as many rounds as in the paper."""
GAP = {**MNIST, **TURN, "model": "mnistfc", "training": "continuous", "learning_rate": 1e-2}

Report = Callable[[str], object]


# Runs.


def finished_run(settings: Settings) -> Path:
    """The folder of this run: started, resumed or, if it is finished already, unchanged."""
    path = Path(settings.run.folder) / settings.run.name
    known = (path / "config.toml").is_file() and same_job(RunFolder.open(path).settings, settings)
    if known and (path / "summary.json").is_file():
        return path
    problem = build_problem(settings.run)
    resume = known and (path / "checkpoint").is_dir()
    folder = RunFolder.open(path) if resume else RunFolder.create(settings, problem.split_summary().as_text())
    run_job(problem, settings, folder, resume=resume)
    return path


def open_run(path: Path) -> tuple[Workplace, State, dict[str, Any]]:
    folder = RunFolder.open(path)
    if folder.settings.run.method != Zampling.name:
        raise RunFolderError(f"{path} is a run of {folder.settings.run.method}: needs one of {Zampling.name}")
    summary = folder.read_summary()
    return Workplace(build_problem(folder.settings.run), folder.settings), folder.last_state().method, summary


def accuracy(workplace: Workplace, state: State, network: str, key: int = 0) -> float:
    workplace.write_network(state, network, key, None)
    return float(workplace.tally(np.arange(len(workplace.problem.test)))[:, 0].mean())


def judge(workplace: Workplace, state: State, samples: int) -> dict[str, float]:
    """All networks of a state: expected, discretised, and the mean, deviation, worst and best of the draws."""
    seed = workplace.settings.run.seed
    drawn = [accuracy(workplace, state, "sampled", derive_key(seed, "judged-draw", draw)) for draw in range(samples)]
    return {
        "expected": accuracy(workplace, state, "expected"),
        "discretised": accuracy(workplace, state, "thresholded"),
        "sampled": statistics.fmean(drawn),
        "sampled_deviation": statistics.stdev(drawn) if samples > 1 else 0.0,
        "sampled_worst": min(drawn),
        "sampled_best": max(drawn),
    }


def judged_run(settings: Settings, samples: int, report: Report) -> dict[str, Any]:
    report(f"{settings.run.name}: training")
    workplace, state, summary = open_run(finished_run(settings))
    judged = judge(workplace, state, samples)
    report(f"{settings.run.name}: expected {judged['expected']:.4f}, sampled {judged['sampled']:.4f}")
    kept = ("seed", "rounds", "seconds", "uplink_bytes", "downlink_bytes", "parameters", "participants")
    return {**judged, **{name: summary[name] for name in kept}, "places": workplace.method("main").map.size}


def _settings(values: dict[str, Any], words: Sequence[str], name: str, **own: Any) -> Settings:
    return resolve(values, [*words, *(f"{key}={value}" for key, value in own.items()), f"name={name}"])


# Tables 2 and 1.


def local_table(words: Sequence[str], seeds: int, samples: int, report: Report, degree: int = 10) -> dict[str, Any]:
    """Local Zampling on SMALL: mean sampled accuracy by compression, over seeds. The paper has five degrees."""
    name = "zampling-local" if degree == 10 else f"zampling-local-d{degree}"
    runs: dict[int, list[dict[str, Any]]] = {factor: [] for factor in COMPRESSIONS}
    for factor in COMPRESSIONS:
        for seed in range(seeds):
            own = {"compression": factor, "degree": degree, "seed": seed}
            settings = _settings(LOCAL, words, f"{name}-{factor}-seed{seed}", **own)
            runs[factor].append(judged_run(settings, samples, report))
    rows = []
    for (factor, found), (paper, deviation) in zip(runs.items(), PAPER_TABLE_2[degree], strict=True):
        means = [100 * run["sampled"] for run in found]
        rows.append(
            {
                "compression": factor,
                "paper": paper,
                "paper_deviation": deviation,
                "sampled": statistics.fmean(means),
                "sampled_deviation": statistics.stdev(means) if seeds > 1 else 0.0,
                "expected": 100 * statistics.fmean(run["expected"] for run in found),
                "best": 100 * statistics.fmean(run["sampled_best"] for run in found),
                "within_two_deviations": statistics.fmean(means) >= paper - 2 * deviation,
            }
        )
    made = {"degree": degree, "seeds": seeds, "samples": samples}
    return {**_origin(LOCAL, words), **made, "rows": rows, "runs": runs}


def federated_table(words: Sequence[str], samples: int, report: Report) -> dict[str, Any]:
    """Federated Zampling on MNISTFC: accuracy, and savings compared with 32 bits per weight.

    Our settings or, with the word preset=paper, the paper's. Local Zampling has the paper's own length and rate anyway.
    """
    paper_preset = dict(word.split("=", 1) for word in words).get("preset") == "paper"
    job, name = (FEDERATED_PAPER, "zampling-paper") if paper_preset else (FEDERATED, "zampling-federated")
    rows, runs = [], {}
    for factor, (client, server, paper) in PAPER_TABLE_1.items():
        settings = _settings(job, words, f"{name}-{factor}", compression=factor)
        run = runs[factor] = judged_run(settings, samples, report)
        naive = 4 * run["parameters"] * run["participants"] * run["rounds"]
        packed = HEADER_BYTES + (run["places"] + 7) // 8
        rows.append(
            {
                "compression": factor,
                "paper": paper,
                "paper_client_savings": client,
                "paper_server_savings": server,
                "expected": run["expected"],
                "sampled": run["sampled"],
                "sampled_deviation": run["sampled_deviation"],
                "client_savings": naive / run["uplink_bytes"],
                # The same bits packed in separate frames, as any codec could send them.
                "client_savings_packed": 4 * run["parameters"] / packed,
                "server_savings": naive / run["downlink_bytes"],
            }
        )
    return {**_origin(job, words), "samples": samples, "rows": rows, "runs": runs}


# Table 4.


def perturbed(p: NDArray[np.float32], tau: float | Literal["all"], key: int) -> tuple[NDArray[np.float32], float]:
    """p plus N(0, 1) where tau <= p <= 1 - tau (or everywhere), clipped to [0, 1]; and the norm of the noise."""
    noise = numpy_generator(key).standard_normal(p.size)
    if tau != "all":
        noise[(p < tau) | (p > 1 - tau)] = 0.0
    return (p + noise).clip(0, 1).astype(np.float32), float(np.linalg.norm(noise))


def sensitivity(
    path: Path, taus: Sequence[float | Literal["all"]], perturbations: int, samples: int, report: Report
) -> dict[str, Any]:
    """How accuracy changes when the learned p are perturbed. A continuous model is evaluated with Q p, others with
    draws."""
    workplace, state, _ = open_run(path)
    method = workplace.method("main")
    assert isinstance(method, Zampling)
    seed, training = workplace.settings.run.seed, method.parameters.map.training
    network, draws = ("expected", 1) if training == "continuous" else ("sampled", samples)

    def mean_accuracy(of: State) -> float:
        keys = [derive_key(seed, "judged-draw", draw) for draw in range(draws)]
        return statistics.fmean(accuracy(workplace, of, network, key) for key in keys)

    p = probabilities(method.thresholds(state))
    unperturbed = mean_accuracy(state)
    rows = []
    for tau in taus:
        shaken = [perturbed(p, tau, derive_key(seed, "perturbation", number)) for number in range(perturbations)]
        found = [mean_accuracy({"p": values}) for values, _ in shaken]
        lost = [unperturbed - value for value in found]
        theirs = PAPER_TABLE_4.get(str(tau), {}).get(training)
        rows.append(
            {
                "tau": tau,
                "places": float(np.mean(np.ones(p.size) if tau == "all" else (p >= tau) & (p <= 1 - tau))),
                "accuracy": 100 * statistics.fmean(found),
                "accuracy_deviation": 100 * statistics.pstdev(found),
                "sensitivity": statistics.fmean(lost) / unperturbed if unperturbed else 0.0,
                # If no p lies inside tau, no noise was added and nothing can be lost.
                "deviation": statistics.fmean(
                    value / norm if norm else 0.0 for value, (_, norm) in zip(lost, shaken, strict=True)
                ),
                "paper": theirs,
            }
        )
        report(f"tau {tau}: {rows[-1]['accuracy']:.2f}%")
    return {
        "run": path.name,
        "training": training,
        "perturbations": perturbations,
        "samples": draws,
        "unperturbed": 100 * unperturbed,
        "rows": rows,
        "versions": versions(),
    }


# Figure 5.


def integrality_gap(
    words: Sequence[str], shapes: Sequence[float], seeds: int, samples: int, report: Report
) -> dict[str, Any]:
    """Continuous training from p ~ Beta(a, a): what is lost when p is replaced by bits at the end."""
    plan = [
        (shape, _settings(GAP, words, f"zampling-gap-{shape}-seed{seed}", p_init=shape, seed=seed))
        for shape in shapes
        for seed in range(seeds)
    ]
    runs: dict[float, list[dict[str, Any]]] = {shape: [] for shape in shapes}
    for shape, settings in plan:
        runs[shape].append(judged_run(settings, samples, report))
    rows = []
    for shape, found in runs.items():
        names = ("expected", "sampled", "sampled_deviation", "sampled_worst", "sampled_best", "discretised")
        row = {name: statistics.fmean(run[name] for run in found) for name in names}
        rows.append({"beta": shape, **row, "gap": row["expected"] - row["sampled"]})
    return {**_origin(GAP, words), "seeds": seeds, "samples": samples, "rows": rows, "runs": runs}


def _origin(values: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    return {"settings": {**values, **dict(word.split("=", 1) for word in words)}, "versions": versions()}
