"""Run a FlowerTune-style app without and with compression, and print the bytes and the perplexity of both.

    python examples/flower_lora.py
    python examples/flower_lora.py --seeds 3

The app is in examples/flower_lora: peft's LoRA adapters of a language model under FedAvg, eight clients, each with the
source code of one package of Python's standard library. The model is a tiny Llama, pre-trained on pages of Python's
reference (`tiny_llama.py`); it takes its name from the key `model.name`, so any causal model of the Hugging Face Hub
may be there instead.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from flower_compressed import flwr_run, superlink
from tiny_llama import write_tiny_llama

APP = Path(__file__).parent / "flower_lora"
CLIENTS = 8
RESULT = re.compile(
    r"uplink (\d+) bytes in (\d+) replies, downlink (\d+) bytes\s+perplexity ([0-9.]+) to ([0-9.]+)", re.MULTILINE
)


@dataclass(frozen=True)
class Outcome:
    uplink_bytes: int
    downlink_bytes: int
    before: float
    after: float

    def line(self, name: str, seed: int) -> str:
        sent = f"{self.uplink_bytes / 1e6:.3f} MB up, {self.downlink_bytes / 1e6:.3f} MB down"
        return f"seed {seed}  {name:11}  {sent}, perplexity {self.before:.2f} to {self.after:.2f}"


def compare(folder: Path, seed: int) -> tuple[Outcome, Outcome]:
    """Run the app without and with compression, in an empty folder."""
    shutil.copytree(APP, folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    write_tiny_llama(folder / "base")
    with superlink(folder) as environment:
        return run(folder, environment, seed, False), run(folder, environment, seed, True)


def run(folder: Path, environment: dict[str, str], seed: int, compressed: bool) -> Outcome:
    keys = f"compress={str(compressed).lower()} seed={seed} model.name='{folder / 'base'}'"
    found = flwr_run(folder, environment, keys, CLIENTS, RESULT)
    return Outcome(int(found[1]), int(found[3]), float(found[4]), float(found[5]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="repeat with this many seeds")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # So small a model is not faster with more.
    for seed in range(parser.parse_args().seeds):
        with tempfile.TemporaryDirectory() as folder:
            plain, compressed = compare(Path(folder), seed)
        print(plain.line("plain", seed))
        print(compressed.line("eden, 1 bit", seed))
        up, down = plain.uplink_bytes / compressed.uplink_bytes, plain.downlink_bytes / compressed.downlink_bytes
        print(f"{up:.1f} times fewer bytes up, {down:.1f} down; perplexity {compressed.after / plain.after - 1:+.2%}")


if __name__ == "__main__":
    main()
