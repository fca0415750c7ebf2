"""Mask files: two tasks on one base, bit for bit; a wrong base and hostile bytes are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import subbit
from subbit.codecs.packed import pack_bits
from subbit.core.errors import ConfigError, FrameError, ModelError, RunFolderError, SubbitError
from subbit.data import Examples
from subbit.export.mask_container import pack, unpack
from subbit.export.mask_file import CODEC, MaskFile, known_rates, mask_of_run
from subbit.export.resident import MaskedModel
from subbit.export.runs import TrainedRun, open_run
from subbit.models import Template, model_sha256
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.run import run_job
from tests.problems import digits_problem, mlp, settings


def split(problem: Problem, low: int, high: int) -> Problem:
    """The task of telling the digits low..high-1 apart, as classes from 0 up."""

    def chosen(examples: Examples) -> Examples:
        kept = examples.select(np.flatnonzero((examples.labels >= low) & (examples.labels < high)))
        return Examples(kept.inputs, kept.labels - low)

    train = chosen(problem.train)
    parts = tuple(np.array_split(np.arange(len(train)), 3))
    return dataclasses.replace(problem, train=train, test=chosen(problem.test), parts=parts)


def trained(problem: Problem, folder: Path, **values: object) -> TrainedRun:
    chosen = settings(folder=str(folder), name="run", evaluation="thresholded", **values)
    run_job(problem, chosen, RunFolder.create(chosen, ""))
    return open_run(folder / "run", problem=problem)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainedRun, TrainedRun]:
    """Low and high digits, masks and a fitted head each, on one base."""
    torch.set_num_threads(1)
    words = {"method": "deltamask", "weights": "keep", "head": "probe", "select": "2.weight", "batch_size": 16}
    low, high = split(digits_problem(), 0, 5), split(digits_problem(), 5, 10)
    return (
        trained(low, tmp_path_factory.mktemp("low"), **words),
        trained(high, tmp_path_factory.mktemp("high"), **words),
    )


def test_two_tasks_on_one_base_switch_back_and_forth_bit_for_bit(tasks: tuple[TrainedRun, TrainedRun]) -> None:
    files = [mask_of_run(task).to_bytes() for task in tasks]
    assert all(sorted(MaskFile.from_bytes(data).values) == ["4.bias", "4.weight"] for data in files)
    base = mlp()
    model = subbit.load(base, files[0])
    low, high = (model.read(data) for data in files)
    assert not np.array_equal(low.bits, high.bits)
    for which, task in ((0, low), (1, high), (0, low), (0, files[0]), (1, high)):
        model.switch(task)
        run = tasks[which].workplace
        assert model_sha256(model.module) == model_sha256(run.module)
        inputs = run.problem.test.inputs
        assert model(inputs).numpy().tobytes() == run.module(inputs).detach().numpy().tobytes()
    assert model.module is base


def test_the_network_is_that_of_the_run(tasks: tuple[TrainedRun, TrainedRun]) -> None:
    for task in tasks:
        folder = RunFolder.open(Path(task.workplace.settings.run.folder) / "run")
        assert model_sha256(subbit.load(mlp(), mask_of_run(task)).module) == folder.read_summary()["model_sha256"]


def test_a_head_may_have_another_number_of_classes(tasks: tuple[TrainedRun, TrainedRun]) -> None:
    file = mask_of_run(tasks[0])
    three = {name: value[:3] for name, value in file.values.items()}
    model = subbit.load(mlp(), file)
    inputs = tasks[0].workplace.problem.test.inputs[:4]
    before = model(inputs)
    model.switch(dataclasses.replace(file, values=three).to_bytes())
    torch.testing.assert_close(model(inputs), before[:, :3])
    model.switch(file)
    assert torch.equal(model(inputs), before)


def test_without_a_fitted_head_the_base_keeps_its_own(tasks: tuple[TrainedRun, TrainedRun], tmp_path: Path) -> None:
    """Switching from a task with a head of its own to one without brings the head of the base back."""
    plain = trained(digits_problem(), tmp_path, method="threshold-mask", weights="keep", select="2.weight")
    file = mask_of_run(plain)
    assert not file.values
    model = subbit.load(mlp(), mask_of_run(tasks[0]))
    model.switch(file)
    assert model_sha256(model.module) == model_sha256(plain.workplace.module)


def test_another_base_is_refused_and_the_task_stays(tasks: tuple[TrainedRun, TrainedRun]) -> None:
    file = mask_of_run(tasks[0])
    other = mlp()
    with torch.no_grad():
        other[2].weight[3, 5] += 1e-3
    with pytest.raises(ModelError, match="SHA-256"):
        subbit.load(other, file)
    with pytest.raises(ModelError, match="belongs to a base 'test'"):
        subbit.load("mlp", file)
    with pytest.raises(ModelError, match="other 1280 values"):
        subbit.load(mlp(20), file)
    model = subbit.load(mlp(), file)
    stands = model_sha256(model.module)
    foreign = dataclasses.replace(file, description=dataclasses.replace(file.description, base="0" * 64))
    with pytest.raises(ModelError, match="SHA-256"):
        model.switch(foreign)
    assert model_sha256(model.module) == stands


def test_weights_that_are_no_mask_are_refused(tmp_path: Path) -> None:
    problem = digits_problem()
    chosen = settings(folder=str(tmp_path), name="run", method="fedavg", rounds=1)
    run_job(problem, chosen, RunFolder.create(chosen, ""))
    with pytest.raises(ConfigError, match="no mask on frozen weights"):
        mask_of_run(open_run(tmp_path / "run", problem=problem))
    with pytest.raises(ConfigError, match="share one network"):
        open_run(tmp_path / "run", client=1, problem=problem)
    with pytest.raises(RunFolderError, match="module of its own"):
        open_run(tmp_path / "run")


def test_a_base_by_name_is_built_again(tmp_path: Path) -> None:
    words = {"method": "fedpm", "model": "mlp", "limit": 60, "test_limit": 20, "rounds": 1, "batch_size": 16}
    problem = build_problem(settings(**words).run)
    run = trained(problem, tmp_path, **words)
    file = mask_of_run(run)
    assert subbit.load("mlp", file.to_bytes()).module.head.out_features == 10
    assert model_sha256(subbit.load("mlp", file).module) == model_sha256(run.workplace.module)
    other_seed = dataclasses.replace(file, description=dataclasses.replace(file.description, model_key=1))
    with pytest.raises(ModelError, match="SHA-256"):
        subbit.load("mlp", other_seed)


# Hostile bytes.


@pytest.fixture(scope="module")
def good(tasks: tuple[TrainedRun, TrainedRun]) -> bytes:
    return mask_of_run(tasks[0]).to_bytes()


def test_a_file_is_read_as_it_was_written(good: bytes) -> None:
    assert MaskFile.from_bytes(good).to_bytes() == good


@given(st.data())
def test_any_damage_is_a_typed_error(good: bytes, data: st.DataObject) -> None:
    damaged = bytearray(good)
    kind = data.draw(st.sampled_from(["flip", "truncate", "append", "splice"]))
    place = data.draw(st.integers(0, len(good) - 1))
    if kind == "flip":
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "truncate":
        del damaged[place:]
    elif kind == "append":
        damaged += data.draw(st.binary(min_size=1, max_size=9))
    else:
        piece = data.draw(st.binary(min_size=1, max_size=20))
        damaged[place : place + len(piece)] = piece
    if bytes(damaged) != good:
        with pytest.raises(FrameError):
            MaskFile.from_bytes(bytes(damaged))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        MaskFile.from_bytes(data)


def test_every_flip_of_a_bit_in_the_header_is_found(good: bytes) -> None:
    length = int.from_bytes(good[:8], "little")
    for place in range(8 + length):
        damaged = bytearray(good)
        damaged[place] ^= 1
        with pytest.raises(FrameError):
            MaskFile.from_bytes(bytes(damaged))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", 10**12),
        ("input_shape", "99999x99999"),
        ("input_shape", "1x" * 99 + "1"),
        ("input_shape", "-1"),
        ("model_key", -1),
        ("format", 2),
        ("batchnorm", "none"),
        ("rounds", None),
        ("unknown", 1),
    ],
)
def test_a_forged_description_with_a_right_checksum_is_refused(good: bytes, key: str, value: object) -> None:
    """The checksum finds accidents. A forger writes a right one, and then every field must be refused for itself."""
    description, tensors = unpack("mask", good)
    with pytest.raises(FrameError, match=key):
        MaskFile.from_bytes(pack("mask", {**description, key: value}, tensors))


def test_forged_payloads_and_values_are_refused(good: bytes) -> None:
    file = MaskFile.from_bytes(good)

    def forged(**changes: object) -> bytes:
        return dataclasses.replace(file, **changes).to_bytes()

    hostile = [
        forged(payload=b""),
        forged(payload=file.payload[:-1]),
        forged(payload=file.payload + b"\0"),
        forged(payload=b"\xff" * 40),
        forged(values={**file.values, "nowhere": np.ones(3, np.float32)}),
        forged(values={**file.values, "4.bias": np.ones((5, 5), np.float32)}),
        forged(values={**file.values, "4.weight": np.ones((5, 15), np.float32)}),
        forged(values={**file.values, "4.bias": np.full(5, np.nan, np.float32)}),
        forged(values={**file.values, "4.bias": np.ones(5, np.float64)}),
    ]
    for data in hostile:
        with pytest.raises(SubbitError):
            MaskedModel(mlp(), data)


@pytest.mark.parametrize(
    "steps",
    [
        "rubbish",
        "[" * 100_000,
        "{}",
        '{"method": "nothing", "key": 1, "parameters": {}}',
        '{"method": "fedmask", "key": 1, "parameters": {"weights": "drawn"}}',
        '{"method": "fedavg", "key": 1, "parameters": {}}',
    ],
)
def test_a_forged_preparation_is_refused(good: bytes, steps: str) -> None:
    file = MaskFile.from_bytes(good)
    description = dataclasses.replace(file.description, preparation=steps)
    with pytest.raises(SubbitError):
        subbit.load(mlp(), dataclasses.replace(file, description=description).to_bytes())


@pytest.mark.parametrize("ones", ["", "1,2", "-1", "1e3", "99999999", "9" * 5000])
def test_forged_counts_are_refused(good: bytes, ones: str) -> None:
    file = MaskFile.from_bytes(good)
    with pytest.raises(FrameError):
        subbit.load(mlp(), dataclasses.replace(file, description=dataclasses.replace(file.description, ones=ones)))


def test_layers_of_different_density_are_coded_at_their_own_rate() -> None:
    """4096 places all kept and 4096 of which one in 16 is: H(1/16) = 0.337 bits each, so 173 bytes and not 1024."""
    template = Template(("full", "sparse"), ((64, 64), (64, 64)))
    bits = pack_bits(np.concatenate([np.ones(4096, bool), np.random.default_rng(0).permutation(4096) < 256]))
    shared = known_rates([4096, 256], template)
    data = CODEC.encode(bits, shared)
    assert len(data) == pytest.approx(173, abs=8)
    assert np.array_equal(CODEC.decode(data, shared), bits)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot read"):
        subbit.load(nn.Linear(2, 2), tmp_path / "nowhere.mask")
