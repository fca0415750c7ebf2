"""`subbit domain-gap`: how far a data set is from the one a backbone was trained on, in the backbone's features.

Paper 003, figure 4a: the features of the test examples of all data sets are projected onto two axes by a linear
discriminant analysis whose classes are the data sets. The gap is the distance between the centres of a data set and of
the reference. Coordinates are in standard deviations within data sets. A projection depends on all its data sets:
compare gaps within one plot only.

With fewer examples than features, data sets are separable by chance. The covariance is therefore shrunk (Ledoit and
Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004), which keeps this effect small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from subbit.core.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 64


def domain_gap(
    datasets: Annotated[list[str], typer.Argument(help="Data sets whose gap is wanted")],
    reference: Annotated[str, typer.Option(help="The data set that the backbone was trained on")] = "cifar10",
    model: Annotated[str, typer.Option(help="The backbone")] = "subbit/vit-micro",
    limit: Annotated[int, typer.Option(min=2, help="Test examples of each data set")] = 500,
    svg: Annotated[Path | None, typer.Option(help="File for the picture")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
) -> None:
    """Measure how far data sets are from the one a backbone was trained on.

    [bold]subbit domain-gap fashion-mnist mnist digits --reference cifar10 --svg gap.svg[/bold]
    """
    Console(stderr=True).print(f"features of {model}: loading PyTorch", highlight=False, markup=False)
    from subbit.core.files import replace_file
    from subbit.report.scatter import scatter

    gaps, points = measure(model, reference, datasets, limit)
    if svg is not None:
        named = {f"{row['dataset']} ({row['gap']:.2f})": points[row["dataset"]] for row in gaps["datasets"]}
        replace_file(svg, scatter(named, f"Features of {model}, gap to {reference} in brackets").encode())
    if as_json:
        print(json.dumps(gaps, indent=2))
        return
    table = Table(title=f"{model}, as far from {reference}")
    table.add_column("data set", overflow="fold")
    for heading in ("examples", "gap"):
        table.add_column(heading, justify="right")
    for row in gaps["datasets"]:
        table.add_row(row["dataset"], str(row["examples"]), f"{row['gap']:.3f}")
    Console().print(table)


def measure(
    model: str, reference: str, datasets: list[str], limit: int
) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Gaps by data set, the reference first, and the projected examples of each."""
    import numpy as np

    names = [reference, *datasets]
    if len(set(names)) != len(names) or not datasets:
        raise ConfigError(f"data sets {', '.join(names)}: needs the reference and at least one other, each once")
    features = {name: _features(model, name, limit) for name in names}
    points = project(features)
    centre = points[reference].mean(axis=0)
    rows = [
        {
            "dataset": name,
            "examples": len(points[name]),
            "centre": points[name].mean(axis=0).tolist(),
            "gap": float(np.linalg.norm(points[name].mean(axis=0) - centre)),
        }
        for name in names
    ]
    return {"model": model, "reference": reference, "datasets": rows}, points


def project(features: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Each data set's features on the two axes that separate the data sets best. Two data sets have only one axis."""
    import numpy as np
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    everything = np.concatenate(list(features.values()))
    if not np.isfinite(everything).all():
        raise ModelError("features hold values that are not finite")
    owners = np.repeat(np.arange(len(features)), [len(part) for part in features.values()])
    axes = min(2, len(features) - 1)
    analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=axes)
    projected = analysis.fit(everything, owners).transform(everything)
    points = np.zeros((len(everything), 2))
    points[:, :axes] = projected
    return {name: points[owners == number] for number, name in enumerate(features)}


def _features(model: str, name: str, limit: int) -> NDArray[np.float64]:
    import numpy as np
    import torch

    from subbit.data import load_dataset
    from subbit.models import Classifier, load_classifier
    from subbit.models.small import SmallNetwork

    test = load_dataset(name, limit=1, test_limit=limit).test
    shape = tuple(test.batch(np.arange(1)).tensor.shape[1:])
    network = load_classifier(model, 1, key=0, input_shape=shape).eval()
    if not isinstance(network, Classifier | SmallNetwork):
        raise ModelError(f"model {model!r}: a network of a plugin does not say which of its layers the features are")
    with torch.no_grad():
        batches = [network.features(batch.tensor) for batch in test.in_batches(BATCH)]
    features: NDArray[np.float64] = torch.cat(batches).double().numpy()
    return features
