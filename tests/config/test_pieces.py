"""Keys belong to pieces: what a choice brings with it, what it does not, and how words find their table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import ClassVar

import pytest

from subbit.codecs.eden import Eden
from subbit.codecs.topk import TopK
from subbit.config.resolve import resolve, write_toml
from subbit.core.errors import ConfigError
from subbit.core.pieces import Tables, as_words, choice
from subbit.local.optimizers import Sgd
from subbit.methods.names import method_names


def test_a_choice_brings_its_options_with_it() -> None:
    up = resolve({"method": "fedavg"}, ["codec=eden", "bits=0.5"]).parameters.up
    assert up.codec == Eden(bits=0.5)
    assert resolve({"method": "fedavg", "up": {"codec": "eden", "bits": 0.5}}).parameters.up == up
    assert resolve({"fedavg": {"up": {"codec": "eden"}}}, ["method=fedavg", "up.bits=0.5"]).parameters.up == up


@pytest.mark.parametrize(
    "words",
    [
        ["method=topk", "levels=7"],
        ["method=topk", "bits=3"],
        ["method=fedavg", "bits=1"],
        ["method=fedavg", "momentum=0.5"],
        ["method=fedavg", "optimizer=adamw", "momentum=0.5"],
        ["method=fedavg", "trim=0.2"],
        ["method=fedpeft", "tuning=bias", "lora_rank=2"],
        ["method=fedprox", "temperature=0.5"],
        ["method=fedavg", "epsilon=5"],
        ["method=deltamask", "privacy=run"],
        ["method=deltamask", "codec=rice", "bits=8"],
        ["method=fedavg", "down_bits=1"],
    ],
)
def test_an_option_that_the_chosen_pieces_do_not_have_is_an_unknown_key(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{words[-1].partition('=')[0]}'") as caught:
        resolve({}, words)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("words", "owner"),
    [(["method=topk", "levels=7"], "codec=qsgd"), (["method=fedavg", "momentum=0.5"], "optimizer=sgd")],
)
def test_the_error_says_which_choice_would_have_it(words: list[str], owner: str) -> None:
    with pytest.raises(ConfigError, match=owner):
        resolve({}, words)


def test_what_goes_down_has_keys_of_its_own() -> None:
    parameters = resolve(
        {"method": "fedavg"}, ["codec=topk", "fraction=0.2", "down_codec=eden", "down.bits=2"]
    ).parameters
    assert parameters.up.codec == TopK(fraction=0.2)
    assert parameters.down.codec == Eden(bits=2)


def test_a_choice_that_is_the_default_keeps_the_options_that_the_method_gave_it() -> None:
    assert resolve({"method": "per-fedavg"}, ["optimizer=sgd"]).parameters.local.optimizer == Sgd(momentum=0.0)
    assert resolve({"method": "fedavg"}, ["optimizer=sgd"]).parameters.local.optimizer == Sgd(momentum=0.9)


def test_a_name_for_settings_of_another_method_fixes_them() -> None:
    assert resolve({"method": "topk"}).parameters == resolve({"method": "fedavg", "codec": "topk"}).parameters
    for word in ("codec=eden", "up.codec=dense"):
        with pytest.raises(ConfigError, match="method=topk is codec=topk"):
            resolve({"method": "topk"}, [word])
    with pytest.raises(ConfigError, match="method=topk is codec=topk"):
        resolve({"topk": {"up": {"codec": "dense"}}}, ["method=topk"])
    with pytest.raises(ConfigError, match="method=fedprox is regulariser=fedprox"):
        resolve({"method": "fedprox"}, ["local.regulariser=none"])
    with pytest.raises(ConfigError, match="method=threshold-mask is map=threshold"):
        resolve({"method": "threshold-mask"}, ["map.map=mask"])
    assert resolve({"method": "topk"}, ["up.codec=topk"]) == resolve({"method": "topk"})


def test_options_of_a_preset_are_left_out_where_another_choice_was_made() -> None:
    """QSGD's preset has levels; deepreduce's has a budget of its filter."""
    chosen = resolve({"method": "fedavg", "preset": "paper"}, ["optimizer=adam"]).parameters
    assert chosen.local.optimizer.name == "adam"
    assert chosen.local.epochs == 5


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_every_method_is_written_down_and_read_again(method: str, preset: str) -> None:
    settings = resolve({"method": method, "preset": preset})
    assert resolve(tomllib.loads(write_toml(settings))) == settings


def test_none_is_written_down_where_it_is_not_the_default() -> None:
    settings = resolve({"method": "gradmask", "mask": "least-sensitive", "calibration_examples": "none"})
    assert resolve(tomllib.loads(write_toml(settings))) == settings


@dataclass(frozen=True)
class _First:
    name: ClassVar[str] = "first"
    size: int = 1


@dataclass(frozen=True)
class _Second:
    size: int = 2


@dataclass(frozen=True)
class _Both:
    one: _First = _First()
    two: _Second = _Second()


def test_a_word_that_two_tables_have_needs_the_name_of_its_table() -> None:
    with pytest.raises(ConfigError, match=r"write one\.size or two\.size"):
        Tables(_Both, {}).build({"size": "3"})
    built = Tables(_Both, {}).build({"two.size": "3"})
    assert (built.one.size, built.two.size) == (1, 3)
    assert as_words(built) == {"one": {"size": 1}, "two": {"size": 3}}


def test_a_choice_of_an_unknown_name_says_the_nearest() -> None:
    @dataclass(frozen=True)
    class Chosen:
        optimizer: object = choice("optimizer", Sgd())

    with pytest.raises(ConfigError, match="did you mean 'adamw'"):
        Tables(Chosen, {"optimizer": "adamww"})


@pytest.mark.parametrize("word", ["kappa=0.1", "seed_scope=round", "order=random", "estimator=mean", "trim=0.1"])
def test_with_changes_of_scores_keys_of_bits_are_unknown(word: str) -> None:
    assert resolve({"method": "deltamask"}, [word]).run.method == "deltamask"
    with pytest.raises(ConfigError, match=f"unknown key '{word.partition('=')[0]}'") as caught:
        resolve({"method": "deltamask", "codec": "ternary"}, [word])
    assert ("no effect with codec=ternary" in str(caught.value)) == (word not in ("estimator=mean", "trim=0.1"))


@pytest.mark.parametrize("method", ["deltamask", "fedpm", "zampling"])
def test_with_changes_of_scores_what_is_used_is_recorded(method: str) -> None:
    settings = resolve({"method": method, "codec": "ternary", "preset": "paper"}, ["error_feedback=false"])
    written = tomllib.loads(write_toml(settings))[method]
    assert (written["down"]["codec"], written["aggregate"]["aggregator"]) == ("dense", "mean")
    assert written["up"]["error_feedback"] is False
    assert not {"kappa", "seed_scope", "clamp"} & {*written["up"], *written["aggregate"]}
    assert resolve(tomllib.loads(write_toml(settings))) == settings
    bits = tomllib.loads(write_toml(resolve({"method": method})))[method]
    assert (bits["down"]["codec"], bits["aggregate"]["aggregator"]) == ("counts", "beta")
    assert "error_feedback" not in bits["up"]
    with pytest.raises(ConfigError, match=r"aggregate\.aggregator=beta does not go with the other choices: use mean"):
        resolve({"method": method, "codec": "ternary", "aggregator": "beta"})
    with pytest.raises(ConfigError, match="unknown key 'error_feedback'"):
        resolve({"method": method, "error_feedback": True})
