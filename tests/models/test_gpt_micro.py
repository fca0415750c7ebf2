"""The language model in the package: found by its name, offline, with its own tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from subbit.config.resolve import resolve
from subbit.core.errors import ModelError
from subbit.data.speeches import COMEDIES
from subbit.models.language import load_language_model
from subbit.models.load_model import BUNDLED, load_classifier, model_names, own_tokenizer
from subbit.models.select import find_blocks
from subbit.runtime.problem import build_problem

NAME = "subbit/gpt-micro"
SPEECHES = ["To be, or not to be: that is the question.", "Nay, answer me; stand, and unfold yourself.", "Long live!"]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lines = [json.dumps({"who": who, "text": text}) for who in "AB" for text in SPEECHES]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return f"{tmp_path / 'texts.jsonl'}?text=text&owner=who&pack=true"


def test_it_is_listed_with_its_size_and_says_what_it_has_read() -> None:
    listed = next(model for model in model_names() if model.name == NAME)
    module = load_language_model(NAME, key=0)
    assert sum(value.numel() for value in module.parameters()) == listed.parameters == 1_421_760
    assert {value.dtype for value in module.parameters()} == {torch.float32}
    assert find_blocks(module) == ("transformer.h", 4)
    assert any("bias" in name for name, _ in module.named_parameters())
    record = json.loads((BUNDLED[NAME] / "pretraining.json").read_text())
    assert record["plays"] == list(COMEDIES)
    assert record["curve"][-1]["step"] == record["settings"]["steps"], "the pre-training was not cut short"


def test_a_run_uses_its_tokenizer(texts: str) -> None:
    """Shakespeare is likelier than the same letters in another order."""
    settings = resolve({"objective": "language", "model": NAME, "dataset": texts + "&length=32", "clients": 1})
    problem = build_problem(settings.run)
    batch = problem.some(8)
    tokens = batch.tensors()["input_ids"]
    assert tokens.shape[1] == 32
    assert int(tokens.max()) < 1024
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(own_tokenizer(NAME))
    assert tokenizer.decode(tokens[0]).startswith("To be, or not to be: that is the question.<|endoftext|>")
    losses = {}
    for name, text in (("own", SPEECHES[0]), ("shuffled", " ".join(sorted(SPEECHES[0].split(), key=len)))):
        row = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            losses[name] = float(problem.module.eval()(input_ids=row, labels=row).loss)
    assert losses["own"] < losses["shuffled"] < 7, "a guess among 1,024 tokens costs log(1024) = 6.93"


def test_texts_longer_than_its_context_are_refused(texts: str) -> None:
    settings = resolve({"objective": "language", "model": NAME, "dataset": texts + "&length=256", "clients": 1})
    with pytest.raises(ModelError, match=r"texts of 256 tokens; needs at most 128"):
        build_problem(settings.run)


def test_random_weights_and_a_classifier_of_texts() -> None:
    drawn, again = (load_language_model(NAME, key=3, pretrained=False) for _ in range(2))
    weights = [module.get_parameter("transformer.h.0.mlp.c_fc.weight") for module in (drawn, again)]
    assert torch.equal(*weights)
    assert not torch.equal(
        weights[0], load_language_model(NAME, key=3).get_parameter("transformer.h.0.mlp.c_fc.weight")
    )
    classifier = load_classifier(NAME, 3, key=0)
    assert classifier(torch.full((2, 10), 5)).shape == (2, 3)


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(BUNDLED[NAME], tmp_path, dirs_exist_ok=True)
    monkeypatch.setitem(BUNDLED, NAME, tmp_path)
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match=r"damaged or was changed; install subbit again"):
        load_language_model(NAME, key=0)
    with pytest.raises(ModelError, match=r"damaged or was changed"):
        load_classifier(NAME, 3, key=0)
