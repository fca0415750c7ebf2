"""Texts that every Python has: the source code of its standard library. A client has those of one package."""

import sysconfig
from pathlib import Path

import torch
from transformers import AutoTokenizer

PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "urllib")
CHARACTERS = 20_000
"""Of each client. All of these packages have more."""


def load_partition(partition, settings):
    """Pieces of equal length, as rows of tokens: the first four fifths to train on, the rest to test."""
    folder = Path(sysconfig.get_path("stdlib")) / PACKAGES[partition % len(PACKAGES)]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))[:CHARACTERS]
    tokens = torch.tensor(AutoTokenizer.from_pretrained(settings["model.name"])(text)["input_ids"])
    pieces = tokens[: len(tokens) // settings["train.seq-length"] * settings["train.seq-length"]]
    pieces = pieces.reshape(-1, settings["train.seq-length"])
    split = len(pieces) * 4 // 5
    return pieces[:split], pieces[split:]
