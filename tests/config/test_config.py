"""Configuration: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

import pytest

from subbit.config.resolve import resolve, resolve_contender, write_toml
from subbit.config.schema import RunConfig
from subbit.core.errors import ConfigError
from subbit.methods.names import find_method


def test_words_win_over_the_file_which_wins_over_the_preset() -> None:
    values = {"method": "deltamask", "preset": "paper", "codec": "xor", "rounds": 7}
    settings = resolve(values, ["rounds=9"])
    assert settings.run.rounds == 9
    assert settings.parameters.up.codec.name == "xor"
    assert settings.parameters.down.codec.name == "dense"  # From the preset.
    assert settings.parameters.local.learning_rate == 0.1  # From the defaults.


def test_a_table_belongs_to_its_method_alone() -> None:
    values = {"deltamask": {"batch_size": 5}, "fedavg": {"batch_size": 6}}
    assert resolve(values, ["method=deltamask"]).parameters.local.batch_size == 5
    assert resolve(values, ["method=fedavg"]).parameters.local.batch_size == 6


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["method=detlamask"], ["'detlamask'", "'deltamask'"]),
        (["method=deltamask", "kapa=0.5"], ["'kapa'", "'kappa'"]),
        (["rounds=three"], ["rounds='three'", "a whole number"]),
        (["rounds=-1"], ["rounds=-1", "0 or more"]),
        (["rounds=2.5"], ["rounds='2.5'", "a whole number"]),
        (["participation=0"], ["participation=0"]),
        (["kappa=1.5"], ["kappa=1.5", "between 0 and 1"]),
        (["kappa=nan"], ["kappa=nan"]),
        (["codec=flip"], ["codec='flip'", "flips"]),
        (["preset=papers"], ["preset='papers'", "paper"]),
        (["name=../evil"], ["name='../evil'"]),
        (["rounds"], ["'rounds'", "key=value"]),
    ],
)
def test_errors_name_the_wrong_word_and_what_is_needed(words: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({}, words)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["betas=2,3"], "betas=(2.0, 3.0)"),
        (["eps=-1"], "eps=-1.0"),
        (["optimizer=sgd", "momentum=0", "nesterov=true"], "nesterov=true"),
        (["optimizer=adadelta", "rho=3"], "optimizer=adadelta: Invalid rho value: 3.0"),
        (["optimizer=adamw", "betas=2,3"], "optimizer=adamw: Invalid beta"),
    ],
)
def test_options_of_an_optimiser_are_checked_before_anything_is_trained(words: list[str], found: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(found)):
        resolve({"method": "fedavg"}, words)


def test_an_unknown_table_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"\[deltamsk\].*'deltamask'"):
        resolve({"deltamsk": {"kappa": 1.0}})


def test_a_key_of_another_contender_is_skipped_but_a_key_of_nobody_is_not() -> None:
    assert resolve({"kappa": 0.5}, ["method=fedpm"], others=["deltamask", "fedpm"]).run.method == "fedpm"
    topk = ["fedavg:codec=topk", "fedavg"]
    assert resolve({"fraction": 0.5}, ["method=fedavg"], others=topk).parameters.up.codec.name == "dense"
    with pytest.raises(ConfigError, match="fraction"):
        resolve({"fraction": 0.5}, ["method=fedavg"], others=["fedavg"])
    with pytest.raises(ConfigError, match="kapa"):
        resolve({"kapa": 0.5}, ["method=fedpm"], others=["deltamask", "fedpm"])


def test_a_contender_must_know_its_own_keys_and_lends_them_to_nobody() -> None:
    contenders = ["fedavg:codec=eden", "fedavg:codec=topk,fraction=0.1"]
    eden = ["codec=eden", "run.method=fedavg"]
    with pytest.raises(ConfigError, match="unknown key 'fraction'"):
        resolve_contender({}, [], contenders, [*eden, "fraction=0.2"])
    # Nobody but this contender has the codec that knows `bits`: a common key that only it knows is no key of others.
    assert resolve_contender({}, ["bits=2"], contenders, eden)[0].parameters.up.codec.bits == 2
    with pytest.raises(ConfigError, match="unknown key 'levels'"):
        resolve_contender({}, ["levels=2"], contenders, ["codec=topk", "run.method=fedavg"])
    assert resolve_contender({"fraction": 0.5}, [], contenders, eden)[1] == ("fraction",)


def test_values_from_toml_keep_their_type() -> None:
    with pytest.raises(ConfigError, match=r"rounds=2\.5"):
        resolve({"rounds": 2.5})
    with pytest.raises(ConfigError, match="rounds=True"):
        resolve({"rounds": True})
    assert resolve({"alpha": 1}).run.alpha == 1.0


@pytest.mark.parametrize("word", ["theta_init=0.3", "theta_init=normal", "theta_init=auto"])
def test_a_union_takes_either_kind(word: str) -> None:
    value = word.partition("=")[2]
    assert str(resolve({}, [word]).parameters.map.map.theta_init) == value


@pytest.mark.parametrize("words", [[], ["preset=paper", "bits=16", "limit=50"], ["method=fedavg", "seed=3"]])
def test_the_written_configuration_gives_the_same_settings_again(words: list[str]) -> None:
    settings = resolve({}, words)
    assert resolve(tomllib.loads(write_toml(settings))) == settings


def test_every_key_has_a_default_that_is_valid() -> None:
    RunConfig()


@pytest.mark.parametrize(
    ("values", "words", "found"),
    [
        ({"codec": "eden", "bits": 1.0, "up": {"bits": 2.0}}, ["bits=3"], 3.0),
        ({"codec": "eden", "bits": 1.0, "up": {"bits": 2.0}}, [], 2.0),
        ({"codec": "eden", "fedavg": {"up": {"bits": 2.0}}}, ["bits=3"], 3.0),
        ({}, ["codec=eden", "bits=3", "up.bits=2", "bits=4"], 4.0),
    ],
)
def test_the_last_one_wins_however_it_is_written(values: dict[str, Any], words: list[str], found: float) -> None:
    assert resolve({"method": "fedavg", **values}, words).parameters.up.codec.bits == found


def test_a_choice_on_the_command_line_wins_over_one_in_a_table() -> None:
    values = {"method": "fedavg", "codec": "topk", "fedavg": {"up": {"codec": "qsgd"}}}
    assert resolve(values, ["codec=eden"]).parameters.up.codec.name == "eden"
    assert resolve(values).parameters.up.codec.name == "qsgd"


def test_a_key_of_the_run_and_of_a_chosen_piece_can_mean_two_things() -> None:
    """RMSprop has an option `alpha`, as the Dirichlet split has."""
    rmsprop = {"method": "fedavg", "optimizer": "rmsprop"}
    with pytest.raises(ConfigError, match=r"alpha='0.9' can mean two things: write run\.alpha or local\.alpha"):
        resolve(rmsprop, ["alpha=0.9"])
    split = resolve(rmsprop, ["run.alpha=0.9"])
    assert (split.run.alpha, split.parameters.local.optimizer.alpha) == (0.9, 0.99)
    option = resolve(rmsprop, ["local.alpha=0.9"])
    assert (option.run.alpha, option.parameters.local.optimizer.alpha) == (10.0, 0.9)
    both = resolve(rmsprop, ["alpha=0.5", "local.alpha=0.9"])  # As config.toml has it.
    assert (both.run.alpha, both.parameters.local.optimizer.alpha) == (0.5, 0.9)
    assert resolve(tomllib.loads(write_toml(both))) == both
    assert resolve({"method": "fedavg"}, ["alpha=0.9"]).run.alpha == 0.9
    assert resolve({"run": {"alpha": 0.9, "method": "fedavg"}}).run.method == "fedavg"
    with pytest.raises(ConfigError, match=r"unknown key .run\.bits."):
        resolve({}, ["run.bits=3"])


def test_a_method_whose_own_key_is_one_of_the_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Parameters:
        rounds: int = 3

    monkeypatch.setattr(find_method("fedavg"), "Parameters", Parameters)
    with pytest.raises(ConfigError, match="'fedavg' has a key 'rounds', which is one of the run"):
        resolve({"method": "fedavg"})


def test_a_preset_that_a_method_does_not_have_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_method("fedavg"), "presets", {"default": {}})
    with pytest.raises(ConfigError, match="preset=paper: method 'fedavg' has only default"):
        resolve({"method": "fedavg", "preset": "paper"})


def test_a_comparison_tells_which_keys_it_skips_and_never_skips_privacy() -> None:
    contenders = ["fedavg", "deltamask"]
    assert resolve_contender({"kappa": 0.5}, ["method=fedavg"], contenders)[1] == ("kappa",)
    assert resolve_contender({"kappa": 0.5}, ["method=deltamask"], contenders)[1] == ()
    for word in ("privacy=run", "local.privacy=run"):
        with pytest.raises(ConfigError, match="'deltamask' has no privacy"):
            resolve({}, [word, "method=deltamask"], others=contenders)
    assert resolve({}, ["privacy=none", "method=deltamask"], others=contenders).run.method == "deltamask"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["method=fedavg", "down_codec=eden", "bits=2"], "'down_bits'"),
        (["method=fedavg", "epoch=2"], "'epochs'"),
        (["method=fedavg", "round=2"], "'rounds'"),
        (["method=fedavg", "head_epoch=2"], "'head_epochs'"),
    ],
)
def test_the_hint_for_an_unknown_key(words: list[str], meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {meant}"):
        resolve({}, words)
