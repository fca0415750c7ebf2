"""frozen_weights: what is not trained in lower precision, and what is trained exactly as it was."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.problems import conv_net, digits_problem, mlp, settings, small_vit
from torch import nn

import subbit
from subbit.core.errors import ConfigError
from subbit.export.runs import open_run
from subbit.models import FlatModel, load_classifier
from subbit.models.find_prefix import find_prefix
from subbit.models.frozen_weights import is_quantised, narrow_frozen, widened
from subbit.models.select import select_parameters
from subbit.runtime.workplace import Workplace

INT8 = pytest.param("int8", marks=pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed"))
LAST = "backbone.layers.1.mlp.* + head"


def test_bfloat16_rounds_what_is_frozen_and_nothing_else() -> None:
    before = {name: value.clone() for name, value in small_vit().state_dict().items()}
    module = small_vit()
    narrow_frozen(module, select_parameters(module, LAST), "bfloat16")
    flat = FlatModel(module, LAST)
    assert torch.equal(flat.weights, torch.cat([before[name].flatten() for name in flat.template.names]))
    for name, value in module.named_parameters():
        trained = name in flat.template.names
        assert value.dtype == (torch.float32 if trained else torch.bfloat16), name
        assert torch.equal(value, before[name] if trained else before[name].bfloat16())


def test_batch_normalisation_stays_float32() -> None:
    module = conv_net()
    narrow_frozen(module, select_parameters(module, "head"), "bfloat16")
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms
    assert all(value.dtype != torch.bfloat16 for layer in norms for value in layer.state_dict().values())
    assert any(value.dtype == torch.bfloat16 for value in module.parameters())
    assert module(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).dtype == torch.float32


@pytest.mark.parametrize("kind", ["bfloat16", INT8])
def test_gradients_pass_through(kind: str) -> None:
    """Within the precision of the frozen weights: 8 bits of a mantissa, or a step of 1/127 of the largest."""
    module, images = small_vit().eval(), torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    # The first block is trained, so that its gradient goes through the second, which is frozen.
    whole = FlatModel(module, "backbone.layers.0.mlp.*")
    whole.evaluation_mode()
    whole.backward(module(images).square().mean())
    lean = small_vit()
    narrow_frozen(lean, whole.template.names, kind)
    flat = FlatModel(lean, "backbone.layers.0.mlp.*")
    flat.evaluation_mode()
    flat.backward(lean(images).float().square().mean())
    cosine = nn.functional.cosine_similarity(flat.gradient, whole.gradient, dim=0)
    assert cosine > 0.999
    plain = widened(lean)
    assert {value.dtype for value in plain.parameters()} == {torch.float32}
    assert not any(map(is_quantised, plain.parameters()))
    torch.testing.assert_close(plain.eval()(images), lean(images).float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", ["bfloat16", INT8])
def test_int8_and_bfloat16_take_less(kind: str) -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 3))
    narrow_frozen(module, ["1.weight", "1.bias"], kind)
    weight: Any = module[0].weight
    taken = weight.qdata.nbytes + weight.scale.nbytes if kind == "int8" else weight.nbytes
    assert taken == (64 * 64 + 4 * 64 if kind == "int8" else 64 * 64 * 2)


def test_the_cache_keeps_bfloat16() -> None:
    # A cut at a layer without weights of its own, whose inputs are as the layer before left them.
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3)))
    narrow_frozen(module, ["3.1.weight", "3.1.bias"], "bfloat16")
    prefix = find_prefix(FlatModel(module, "3.*"), (), torch.randn(3, 8))
    assert prefix is not None
    inputs = torch.randn(3, 8)
    assert torch.equal(prefix.outputs(inputs, prefix.capture(inputs)), module(inputs))


RUNS: list[dict[str, Any]] = [
    {"method": "fedavg", "select": LAST},
    {"method": "deltamask", "select": "last 1 blocks: weights"},
    {"method": "fedpeft", "tuning": "lora"},
]


@pytest.mark.parametrize("kind", ["bfloat16", INT8])
@pytest.mark.parametrize("values", RUNS, ids=lambda values: values["method"])
def test_a_run_is_saved_as_a_plain_module(values: dict[str, Any], kind: str, tmp_path: Path) -> None:
    problem = digits_problem(small_vit(), examples=60)
    data = [problem.client_data(client) for client in range(2)]
    one = subbit.fine_tune(problem.module, data, problem.test, rounds=1, frozen_weights=kind, **values)
    one.save(tmp_path / "saved")
    images = problem.test.batch(torch.arange(5).numpy()).tensor
    with torch.no_grad():
        loaded = subbit.load_module(tmp_path / "saved", problem.module)
        torch.testing.assert_close(loaded(images), one.module(images).float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", ["bfloat16", INT8])
def test_a_run_is_exported(kind: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from subbit.cli.entry import app

    words = ["clients=2", "limit=40", "test_limit=20", "method=deltamask", f"frozen_weights={kind}", "name=run"]
    run = ["run", *words, f"folder={tmp_path}", "rounds=2", "dataset=digits"]
    assert CliRunner().invoke(app, run).exit_code == 0
    trained = open_run(tmp_path / "run", primary=True)
    for words in (["--module", str(tmp_path / "module")], ["--mask", "--out", str(tmp_path / "mask")]):
        made = CliRunner().invoke(app, ["export", str(tmp_path / "run"), *words])
        assert made.exit_code == 0, made.output
    images = trained.workplace.problem.test_batch(torch.arange(5).numpy()).tensor
    with torch.no_grad():
        expected = trained.workplace.module(images).float()
        found = subbit.load_module(tmp_path / "module")(images)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
        # A mask is on the base as it was before it was rounded, and of the thresholded network.
        masked = subbit.load("subbit/vit-micro", tmp_path / "mask")(images)
        thresholded = open_run(tmp_path / "run").workplace.module(images).float()
    torch.testing.assert_close(masked, thresholded, rtol=0.05, atol=0.1)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="frozen_weights=bfloat16: no layer here has only frozen weights"):
        Workplace(digits_problem(mlp()), settings(method="fedavg", select="all", frozen_weights="bfloat16"))
    with pytest.raises(ConfigError, match="frozen_weights=bfloat16: cannot be mixed with precision=float16"):
        settings(frozen_weights="bfloat16", precision="float16")
    monkeypatch.setitem(__import__("sys").modules, "torchao.quantization", None)
    with pytest.raises(ConfigError, match=r"needs torchao, .* pip install 'subbit\[int8\]'"):
        Workplace(digits_problem(mlp()), settings(method="fedavg", select="head", frozen_weights="int8"))


def test_scores_stay() -> None:
    """The bundled network; 2 of 100 test images are two standard deviations of a share of 0.99."""
    problem = digits_problem(load_classifier("subbit/vit-micro", 10, key=1))
    data = [problem.client_data(client) for client in range(2)]
    scores = [
        subbit.fine_tune(problem.module, data, problem.test, method="fedpeft", tuning="bias", rounds=1, **values).score
        for values in ({}, {"frozen_weights": "bfloat16"})
    ]
    assert scores[1] >= scores[0] - 0.05
