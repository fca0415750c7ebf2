"""The mean of low-rank changes, factored again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import ConfigError
from subbit.models import Template
from subbit.peft.products import LENGTH, find_factors, products, with_products
from subbit.runtime.run import run_job
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings, small_vit

RANK = 2
TEMPLATE = Template(
    (
        "q.lora_A.default.weight",
        "q.lora_B.default.weight",
        "v.lora_A.default.weight",
        "v.lora_B.default.weight",
        "head",
    ),
    ((RANK, 5), (4, RANK), (RANK, 3), (6, RANK), (7,)),
)


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=TEMPLATE.size)


@given(st.integers(0, 2**32))
def test_factors_of_a_product_give_the_product(seed: int) -> None:
    factors, before = find_factors(TEMPLATE), vector(seed)
    after = with_products(factors, before, products(factors, before))
    assert np.allclose(products(factors, after), products(factors, before))
    assert np.array_equal(after[-7:], before[-7:])
    for layer in factors:
        rows = after[layer.down].reshape(RANK, layer.inputs)
        assert np.allclose(rows @ rows.T, LENGTH**2 * np.eye(RANK))


@given(st.integers(0, 2**32))
def test_the_nearest_matrix_of_that_rank(seed: int) -> None:
    """Eckart and Young: what is left out is as large as the singular values that are left out."""
    factors = find_factors(TEMPLATE)
    wanted = (products(factors, vector(seed)) + products(factors, vector(seed + 1))) / 2
    kept = products(factors, with_products(factors, vector(0), wanted))
    start = 0
    for layer in factors:
        end = start + layer.outputs * layer.inputs
        sizes = np.linalg.svd(wanted[start:end].reshape(layer.outputs, layer.inputs), compute_uv=False)
        assert np.linalg.norm(wanted[start:end] - kept[start:end]) == pytest.approx(
            np.linalg.norm(sizes[RANK:]), abs=1e-9
        )
        start = end


def test_nothing_learned_leaves_everything_to_be_learned() -> None:
    factors = find_factors(TEMPLATE)
    after = with_products(factors, vector(0), np.zeros(4 * 5 + 6 * 3))
    assert not products(factors, after).any()
    assert all(np.abs(after[layer.down]).max() > 0.1 and not after[layer.up].any() for layer in factors)


def test_a_round_averages_what_clients_changed() -> None:
    """Two clients with weights 1 and 3 whose means fit into the rank: both factors of rank one, four together."""
    chosen = settings(method="fedpeft", tuning="lora", lora_mean="product", lora_rank=2)
    method = Workplace(digits_problem(small_vit()), chosen).method("main")
    state = method.start()
    view = {"weights": state["weights"]}
    accumulator, expected = method.accumulator(), 0.0
    assert method.step(state, accumulator, 0) == state  # Nobody answered with an example.
    for client, examples in ((0, 1), (1, 3)):
        change = np.zeros(method.size, dtype=np.float32)
        trained = np.asarray(state["weights"], dtype=np.float64).copy()
        for layer in method.factors:  # type: ignore[attr-defined]
            # One column of B each: rank one.
            column = np.random.default_rng(client).normal(size=layer.outputs).astype(np.float32)
            block = np.zeros((layer.outputs, 2), dtype=np.float32)
            block[:, client] = column
            change[layer.up] = block.reshape(-1)
        trained += change
        expected = expected + examples * products(method.factors, trained) / 4  # type: ignore[attr-defined]
        method.accumulate(accumulator, view, {"weights": change}, examples, 0, client)
    after = np.asarray(method.step(state, accumulator, 0)["weights"], dtype=np.float64)
    assert np.allclose(products(method.factors, after), expected, atol=1e-5)  # type: ignore[attr-defined]


def test_a_run_with_the_mean_of_products() -> None:
    problem = digits_problem(small_vit(), examples=60)
    runs = [
        run_job(problem, settings(method="fedpeft", tuning="lora", lora_mean=mean, epochs=2)).summary
        for mean in ("factors", "product")
    ]
    assert all(summary["failed_clients"] == 0 for summary in runs)
    assert runs[0]["total_bytes"] == runs[1]["total_bytes"]
    assert runs[0]["model_sha256"] != runs[1]["model_sha256"]


def test_where_products_make_no_sense() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'lora_mean'.*tuning=lora"):
        settings(method="fedpeft", tuning="bias", lora_mean="product")
    for values in ({"aggregator": "median"}, {"clip_norm": 1.0}, {"codec": "topk"}):
        with pytest.raises(ConfigError, match="lora_mean=product: needs aggregator=mean"):
            settings(method="fedpeft", tuning="lora", lora_mean="product", **values)
