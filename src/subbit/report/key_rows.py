"""The keys of a run, of a method and of what can be chosen in it, as rows of plain values.

What a key means is the docstring below its field. Fields whose name says it, and those that torch has, are described in
`USUAL`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin

from subbit.config.schema import RunConfig
from subbit.core.pieces import DOWN, Table, Tables, is_piece, own_options
from subbit.core.registry import REGISTRIES
from subbit.methods.names import find_method

Row = dict[str, Any]
CHOSEN = ("codec", "map", "aggregator", "optimizer", "regulariser", "privacy", "tuning")
"""Kinds of components that are chosen by a key and bring keys of their own."""
USUAL = {
    "map": "What is trained, and the weights that follow.",
    "codec": "How it is coded.",
    "aggregator": "How uploads become one update.",
    "optimizer": "The optimiser of a client.",
    "regulariser": "What is added to a client's loss.",
    "privacy": "Noise for differential privacy.",
    "tuning": "Which few parameters are trained.",
    "mask": "Which weights a client may change.",
    "mask_every": "How often the mask is drawn.",
    "batch_size": "Examples in a step.",
    "epochs": "Passes over a client's examples in a round.",
    "prune_epochs": "Passes before a client prunes.",
    "prune_iterations": "Steps in which the pruning is done.",
    "activations": "Whether activations are made binary too.",
    "latent_policy": "What a client keeps of its latent weights.",
    "bits": "Bits of a value, or of an entry of a filter.",
    "fraction": "Share of the values that is sent.",
    "values": "How the values that are sent are coded.",
    "levels": "Levels to which values are rounded.",
    "bucket": "Values that share a norm.",
    "chunk": "Values that share a scale.",
    "stochastic": "Round at random, without bias.",
    "clusters": "Values in the codebook.",
    "adaptive": "Let the rate of ones follow the data.",
    "dtype": "Type of the numbers that are sent.",
    "arity": "Places of an entry in the filter.",
    "container": "What compresses the filter.",
    "false_positive_rate": "Share of the zeros that arrive as ones.",
    "target_bpp": "Bits per parameter that the filter may take.",
    "rate": "Bits of divergence in a block.",
    "candidate_bits": "Bits of the index of a candidate.",
    "temperature": "Of the contrast.",
    "epsilon": "Epsilon of the guarantee.",
    "delta": "Probability with which the guarantee may fail.",
    "lora_rank": "Rank of the change.",
    "lora_alpha": "The change is scaled by this over the rank.",
    "momentum": "Momentum of SGD.",
    "weight_decay": "Weight decay.",
    "method": "Name of the method.",
    "folder": "Folder of all runs.",
    "seed": "Seed of all randomness.",
    "clients": "Number of clients.",
    "partition": "How examples are divided among clients.",
    "classes_per_client": "For the partitions by classes.",
    "test_limit": "Use only this many test examples.",
    "evaluate_every": "Rounds from one evaluation to the next.",
    "pooling": "Which feature of a transformer the head gets.",
    "batchnorm": "Running statistics of BatchNorm: frozen, of the batch, or averaged.",
    "head_epochs": "For `head=probe`: passes over a client's examples.",
    "head_learning_rate": "For `head=probe`: learning rate.",
    "head_batch_size": "For `head=probe`: examples in a step.",
}


@lru_cache
def meanings(schema: type) -> dict[str, str]:
    """The docstring below each field, from the most derived class that has one. A class without source has none."""
    found: dict[str, str] = {}
    for each in reversed(schema.__mro__[:-1]):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, following in zip(lines, [*lines[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                said = following.value if isinstance(following, ast.Expr) else None
                if isinstance(said, ast.Constant):
                    found[line.target.id] = inspect.cleandoc(str(said.value)).replace("\n", " ")
    return found


def run_rows() -> list[Row]:
    """The keys that every run has."""
    rows = []
    defaults = {field.name: field for field in dataclasses.fields(RunConfig)}
    for key, declared in own_options(RunConfig).items():
        kind = defaults[key].metadata.get("kind")
        values = {"values": REGISTRIES[kind].names()} if kind else _values(declared)
        rows.append(_row(key, defaults[key].default, values, RunConfig))
    return rows


def method_rows(name: str) -> list[Row]:
    """The keys of a method under its default choices; `from` is the choice that brings a key."""
    method = find_method(name)
    tables = Tables(method.Parameters, {**method.words, **method.presets["default"]})
    built = tables.build({**method.words, **method.presets["default"]})
    rows = []
    for table_name, table in tables.tables.items():
        piece = getattr(built, table_name) if table_name else built
        for row in _table_rows(table, piece):
            key = row["key"]
            word = f"{DOWN}_{key}" if table_name == DOWN and key not in table.plain else key
            if len(tables.places(word)) > 1:
                word = f"{table_name}.{key}"
            rows.append({**row, "key": word, "table": table_name})
    return rows


def _table_rows(table: Table, piece: Any) -> list[Row]:
    options, rows = table.options(), []
    for key, field in table.choices.items():
        kind, accepts = field.metadata["kind"], field.metadata["accepts"]
        registry = REGISTRIES[kind]
        names = [each for each in registry.names() if accepts is None or accepts(registry.find(each))]
        chosen = getattr(piece, key)
        rows.append({**_row(key, chosen.name, {"values": names}, table.schema), "kind": kind})
        rows += [{**row, "from": f"{key}={chosen.name}"} for row in option_rows(chosen)]
    for key, declared in table.plain.items():
        if key in options:
            rows.append(_row(key, getattr(piece, key), _values(declared), table.schema))
    return rows


def option_rows(thing: Any) -> list[Row]:
    """The keys that a component brings: a class with its defaults, or an instance."""
    if not is_piece(thing):
        return []
    schema = thing if isinstance(thing, type) else type(thing)
    defaults = {field.name: field.default for field in dataclasses.fields(schema)}
    return [
        _row(key, defaults[key] if isinstance(thing, type) else getattr(thing, key), _values(declared), schema)
        for key, declared in own_options(schema).items()
        if not is_piece(defaults[key])
    ]


def _row(key: str, default: Any, values: dict[str, list[str]], schema: type) -> Row:
    row: Row = {"key": key, "default": default if isinstance(default, int | float | str) else _as_text(default)}
    return {**row, **values, "what": meanings(schema).get(key) or USUAL.get(key, "")}


def _as_text(default: Any) -> str:
    if default is None:
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(getattr(default, "name", default))


def _values(declared: Any) -> dict[str, list[str]]:
    """`values`: all of them, where they are a fixed set; `words`: those beside numbers or text, e.g. `auto`."""
    parts = get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)
    values: list[str] = []
    fixed = True
    for part in parts:
        if get_origin(part) is Literal:
            values += map(str, get_args(part))
        elif part is bool:
            values += ["true", "false"]
        elif part is type(None):
            values.append("none")
        else:
            fixed = False
    return {"values" if fixed else "words": values} if values else {}
