"""Configuration: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import tomllib

import pytest

from subbit.config.resolve import resolve, write_toml
from subbit.config.schema import RunConfig
from subbit.core.errors import ConfigError


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
        (["rounds=0"], ["rounds=0", "at least 1"]),
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
