"""`model=package.module:build`, and language models by folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.peft.families import write_family
from tests.peft.language_models import language_model, sentences
from torch import nn
from typer.testing import CliRunner

from subbit.cli.entry import app
from subbit.config.resolve import read_toml, resolve
from subbit.config.schema import RunConfig
from subbit.core.errors import ConfigError, ModelError, PluginError
from subbit.core.imported import is_imported
from subbit.core.plugins import NONE
from subbit.models.flat import model_sha256
from subbit.models.select import find_blocks
from subbit.runtime.problem import build_problem, load_module

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.hidden, self.head = nn.Linear(inputs, 16), nn.Linear(16, classes)

    def forward(self, images):
        return self.head(torch.relu(self.hidden(images.flatten(1).float() / 255)))

def build(classes, input_shape):
    return Net(torch.Size(input_shape).numel(), classes)

class Models:
    @staticmethod
    def any_keys(**given):
        assert sorted(given) == ["classes", "input_shape", "seed"]
        return build(given["classes"], given["input_shape"])

def broken(classes):
    return nn.Linear(4, "three")

def wants(thing): ...

def nothing():
    return 3

def trained(classes, input_shape):
    net = build(classes, input_shape)
    with torch.no_grad():
        net.head.bias.add_(1)
    return net

weights = 5
"""
SMALL = ["dataset=digits", "limit=80", "test_limit=40", "clients=3", "rounds=1", "method=fedavg", "pretrained=false"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_nets").mkdir()
    (tmp_path / "own_nets" / "nets.py").write_text(CODE)
    (tmp_path / "own_nets" / "ill.py").write_text("import torch\n\n1 / 0\n")
    (tmp_path / "own_nets" / "typo.py").write_text("def build(:\n")
    (tmp_path / "own_nets" / "needs.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_nets"]:
        del sys.modules[name]


def module_of(name: str, **options: Any) -> nn.Module:
    run = resolve({"plugins": NONE, "model": name, "dataset": "digits", **options}).run
    return load_module(run, 10, (1, 8, 8))


@pytest.mark.parametrize("name", ["own_nets.nets:build", "own_nets.nets:Models.any_keys"])
def test_a_function_builds_the_module_from_the_seed(name: str, own: Path) -> None:
    state = torch.get_rng_state()
    module, again, other = module_of(name), module_of(name), module_of(name, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.head.weight.shape == (10, 16)  # type: ignore[union-attr]
    assert model_sha256(module) == model_sha256(again) != model_sha256(other)


def test_a_run_with_workers_and_its_record(own: Path) -> None:
    """From a TOML file, in one process and in two, and again from what was recorded."""
    (own / "job.toml").write_text('model = "own_nets.nets:build"\n')
    shas = []
    for name, words in (("one", ["job.toml"]), ("two", ["job.toml", "workers=2"]), ("again", ["runs/one/config.toml"])):
        printed = CliRunner().invoke(app, ["run", *words, *SMALL, f"name={name}"])
        assert printed.exit_code == 0, printed.exception
        shas.append(json.loads((own / "runs" / name / "summary.json").read_text())["model_sha256"])
    assert len(set(shas)) == 1
    recorded = read_toml(own / "runs" / "one" / "config.toml")
    assert (recorded["model"], recorded["head"], recorded["pretrained"]) == ("own_nets.nets:build", "keep", False)


def test_what_pretrained_implies(own: Path) -> None:
    """It says how to treat what the function returns; weights that nobody trained are random whatever it says."""
    cases = [("trained", True), ("trained", False), ("build", True)]
    runs = [
        resolve({"plugins": NONE, "model": f"own_nets.nets:{name}", "pretrained": each}).run for name, each in cases
    ]
    problems = [build_problem(run) for run in runs]
    assert [problem.pretrained for problem in problems] == [True, False, False]
    assert model_sha256(problems[0].module) == model_sha256(problems[1].module)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_nets.nets:broken", r"TypeError: .*\(nets\.py, line 23\)"),
        ("own_nets.nets:wants", "needs an argument 'thing'.*classes, input_shape, seed"),
        ("own_nets.nets:nothing", "returns int; needs a torch.nn.Module"),
        ("own_nets.nets:weights", "found int; needs a function"),
        ("own_nets.nets:buidl", "did you mean 'build'"),
        ("own_nets.absent:build", "no module 'own_nets.absent', neither in this folder nor installed"),
        ("own_nets.ill:build", r"ZeroDivisionError: division by zero \(ill\.py, line 3\)"),
        ("own_nets.typo:build", r"SyntaxError: .*\(typo\.py, line 1\)"),
        ("own_nets.needs:build", r"No module named 'not_there_at_all' \(needs\.py, line 1\)"),
    ],
)
def test_errors_are_one_line_with_the_place(name: str, words: str, own: Path) -> None:
    with pytest.raises((PluginError, ModelError), match=words) as caught:
        module_of(name)
    assert str(caught.value).startswith(f"model={name}: ")
    assert "\n" not in str(caught.value)


def test_keys_without_an_effect_are_refused(own: Path) -> None:
    with pytest.raises(ConfigError, match="pooling: has no effect"):
        module_of("own_nets.nets:build", pooling="mean")


def test_what_is_such_a_name(own: Path) -> None:
    assert is_imported("a:b")
    assert is_imported("a.b_c:D.e")
    assert not any(map(is_imported, ["mlp", "owner/model", "a:", ":b", "a b:c", "a:b:c", "hf:owner/x", "1:2", "a.:b"]))
    (own / "a:b").mkdir()
    assert not is_imported("a:b"), "a folder of that name"


@pytest.mark.parametrize("family", ["gpt2", "llama", "llama-tied"])
def test_language_models_by_folder(family: str, tmp_path: Path) -> None:
    model, batch = language_model(family).eval(), sentences(2)
    model.save_pretrained(tmp_path)
    words = {"plugins": NONE, "model": str(tmp_path), "objective": "language"}
    run = resolve(words).run
    assert run.head == "keep"
    loaded: Any = load_module(run, 1, (10,)).eval()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits, rtol=0, atol=0)
        assert loaded(**inputs).get("past_key_values") is None
    assert find_blocks(loaded)[1] == 3
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) == (family != "llama")
    randoms = [load_module(resolve({**words, "pretrained": False, "seed": seed}).run, 1, None) for seed in (0, 0, 1)]
    first, second, third = map(model_sha256, randoms)
    assert first == second != third
    with pytest.raises(ModelError, match="texts of 17 tokens; needs at most 16"):
        load_module(run, 1, (17,))


def language_run(folder: Path) -> RunConfig:
    return resolve({"plugins": NONE, "model": str(folder), "objective": "language"}).run


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    write_family("vit", tmp_path / "vit")
    with pytest.raises(ModelError, match="'vit' model: objective=language needs a causal language model"):
        load_module(language_run(tmp_path / "vit"), 1, (10,))
    language_model("gpt2").transformer.save_pretrained(tmp_path / "gpt2")
    tied: Any = load_module(language_run(tmp_path / "gpt2"), 1, None)
    assert tied.lm_head.weight is tied.transformer.wte.weight  # Tied: nothing is lacking.
    language_model("llama").model.save_pretrained(tmp_path / "llama")
    with pytest.raises(ModelError, match=r"lacks 1 weights of a language model, e\.g\. lm_head\.weight"):
        load_module(language_run(tmp_path / "llama"), 1, None)
