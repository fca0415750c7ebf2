"""Models by name: the bundled transformer, our small networks, and any model of transformers (hub name or folder) that
classifies images, videos or texts.

Only safetensors are read, and no code from a checkpoint is run. A checkpoint that lacks weights of its backbone is
rejected, where transformers would continue with random ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import nn

from subbit.core.blame import blaming
from subbit.core.errors import ConfigError, ModelError
from subbit.core.randomness import derive_key, torch_randomness
from subbit.core.registry import Registry, first_line, make_registry, nearest
from subbit.models.backbones import read_architecture
from subbit.models.classifier import Classifier
from subbit.models.convmixer import ConvMixer, is_convmixer, load_convmixer
from subbit.models.head_start import kaiming_
from subbit.models.small import CharLstm, Conv2, Conv4, Conv6, Conv10, Mlp, RowLstm, SmallConvNet, SmallNetwork
from subbit.models.vgg import Vgg, VggSmall
from subbit.models.vit import load_vit, read_sizes

VIT_MICRO, GPT_MICRO = "subbit/vit-micro", "subbit/gpt-micro"
BUNDLED = {VIT_MICRO: Path(__file__).with_name("vit_micro"), GPT_MICRO: Path(__file__).with_name("gpt_micro")}
BUNDLED_SHA256 = {
    VIT_MICRO: "1ae15e0efd3faa2e4a2133be32ac7363da6f745703c03598155adc94912e6ff6",
    GPT_MICRO: "a56f5883bf8677d25e78f6de24bb730eb969ce11a924050841a1ae2853cb9b78",
}
"""Checksum of the published weights: other weights would silently be another model under the same name."""
_OURS: dict[str, Callable[[tuple[int, ...], int], SmallNetwork]] = {
    "mlp": lambda input_shape, classes: Mlp((prod(input_shape), 300, 100, classes)),
    "mnistfc": lambda input_shape, classes: Mlp((prod(input_shape), 300, 100, classes)),
    "mlp-small": lambda input_shape, classes: Mlp((prod(input_shape), 20, 20, classes)),
    "conv2": Conv2,
    "conv4": Conv4,
    "conv6": Conv6,
    "conv10": Conv10,
    "convnet": SmallConvNet,
    "vgg16": Vgg,
    "vgg-small": VggSmall,
    "convmixer": ConvMixer,
    "har-mlp": lambda input_shape, classes: Mlp((prod(input_shape), 1024, 512, classes)),
    "row-lstm": RowLstm,
    "char-lstm": lambda input_shape, classes: CharLstm(256, classes),
    "next-char": lambda input_shape, classes: CharLstm(80, classes, hidden=128, dense=(512, 192)),
}


def _check(name: str, thing: Any) -> None:
    if not callable(thing):
        raise ConfigError(f"model {name!r}: needs a class or function that makes a network of (input_shape, classes)")


SMALL_MODELS: Registry[Callable[[tuple[int, ...], int], nn.Module]] = make_registry("model", _OURS, _check)
"""Networks built from the shape of one example and the number of classes, built-in and from plugins."""
INPUTS: dict[str, tuple[tuple[int, ...], str]] = {
    "mlp": ((1, 2, 3), "any shape"),
    "mnistfc": ((1, 2, 3), "any shape"),
    "mlp-small": ((1, 2, 3), "any shape"),
    "har-mlp": ((1, 2, 3), "any shape"),
    "char-lstm": ((1,), "texts (length,)"),
    "next-char": ((1,), "texts (length,)"),
}
"""Rank of one example and its description; all other small networks take images."""
IMAGES = ((3,), "images (channels, height, width)")
FROM_ZERO = ("mnistfc", "mlp-small")
"""Pixels from 0 to 1; for other networks from -1 to 1. If weights are redrawn in every step, a background of -1 adds
noise to every unit and a background of 0 adds nothing.
"""
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


@dataclass(frozen=True)
class ModelInfo:
    name: str
    description: str
    parameters: int | None
    """For backbones without the head; for small networks with 10 classes and the inputs given in the description. None
    for networks of plugins, which depend on the data set.
    """


def model_names() -> list[ModelInfo]:
    """The models that `subbit list models` shows. Other models of transformers load by their hub name or folder."""
    theirs = [ModelInfo(name, first_line(SMALL_MODELS[name]), None) for name in SMALL_MODELS if name not in _OURS]
    return [
        ModelInfo(
            "subbit/vit-micro", "vision transformer pre-trained on CIFAR-10, in the package: 32x32, 8 blocks", 905952
        ),
        ModelInfo(
            "subbit/gpt-micro",
            "language model pre-trained on Shakespeare's comedies, in the package: 128 tokens, 4 blocks",
            1421760,
        ),
        ModelInfo("mlp", "784-300-100-10 with ReLU, for inputs of any shape", 266610),
        ModelInfo("mnistfc", "784-300-100-10 of Zampling: as mlp, but pixels from 0 to 1", 266610),
        ModelInfo("mlp-small", "784-20-20-10 of Zampling, pixels from 0 to 1", 16330),
        ModelInfo("conv2", "two convolutions and a head, of FedMask's table 2, for images (here 1x28x28)", 20490),
        ModelInfo("conv4", "four convolutions of FedPM, three dense layers, for images (here 1x28x28)", 1933258),
        ModelInfo("conv6", "six convolutions of FedPM, three dense layers, for images (here 3x32x32)", 2262602),
        ModelInfo("conv10", "ten convolutions of FedPM, three dense layers, for images (here 3x32x32)", 19173962),
        ModelInfo("convnet", "three convolutions with batch normalisation, for images (here 3x32x32)", 24346),
        ModelInfo(
            "vgg16", "VGG16 with dense layers of 4096, for images (here 3x32x32): what FedMask trains", 134301514
        ),
        ModelInfo("vgg-small", "VGG16 with a quarter of its widths, for images (here 3x32x32)", 955098),
        ModelInfo("convmixer", "eight blocks of 64 channels, patches of 2x2, for images (here 3x32x32)", 50250),
        ModelInfo(
            "har-mlp", "561-1024-512-6 with ReLU, of FedMask's size, for inputs of any shape (here 561)", 1105418
        ),
        ModelInfo("row-lstm", "one LSTM layer over the rows of an image, of FedMask's table 2 (here 1x28x28)", 82186),
        ModelInfo("char-lstm", "two LSTM layers over characters, for texts of bytes", 803338),
        ModelInfo(
            "next-char", "two LSTM and three dense layers, for texts of the 80 characters of shakespeare", 369866
        ),
        ModelInfo("openai/clip-vit-base-patch32", "CLIP ViT-B/32, what DeltaMask fine-tunes (downloaded)", 87456000),
        ModelInfo("facebook/dinov2-base", "DINOv2 ViT-B/14 (downloaded)", 86580480),
        ModelInfo("timm/convmixer_768_32.in1k", "ConvMixer-768/32 on ImageNet (downloaded)", 20341248),
        *theirs,
    ]


def load_classifier(
    name: str,
    classes: int,
    *,
    key: int,
    pretrained: bool = True,
    pooling: str = "auto",
    input_shape: tuple[int, ...] | None = None,
    revision: str = "main",
) -> nn.Module:
    """Load the network of that name with a new linear head of `classes` units.

    `pretrained=False` is the same architecture with random weights. All random values are drawn from `key`. Small
    networks are always random and need `input_shape`, the shape of one example. `revision` is that of a hub model.
    """
    if classes < 1:
        raise ModelError(f"classes={classes}: needs at least 1")
    folder = BUNDLED.get(name, Path(name).expanduser())
    small = is_small(name)
    if revision != "main" and (small or folder.is_dir()):
        raise ModelError(f"revision={revision!r}: {name!r} is not from the hub and has no revisions; leave it out")
    if small:
        return _small(name, classes, key, input_shape)
    if not folder.is_dir() and (name in BUNDLED or "/" not in name):
        hint = nearest("" if name in BUNDLED else name, [*SMALL_MODELS, *BUNDLED])
        raise ModelError(f"no model {name!r}: {hint} (or a hub name such as owner/model, or a folder)")
    if name == VIT_MICRO and pretrained and pooling != "pooled":
        with explained(name):
            return _bundled(name, classes, key, pooling, input_shape)
    if name == GPT_MICRO:
        check_bundled(name)
    source = str(folder) if folder.is_dir() else name
    with quiet(), torch_randomness(derive_key(key, "backbone")), explained(name):
        if is_convmixer(source):
            return load_convmixer(source, classes, key, pretrained, revision)
        return _transformers_model(source, classes, key, pretrained, pooling, input_shape, revision)


def is_small(name: str) -> bool:
    """Whether it is one of `SMALL_MODELS`. Plugins are loaded only if the name cannot be anything else."""
    elsewhere = name in BUNDLED or "/" in name or Path(name).expanduser().is_dir()
    return SMALL_MODELS.has(name) if elsewhere else name in SMALL_MODELS


def own_tokenizer(name: str) -> str | None:
    """The name or folder by which transformers finds the tokenizer of a model; none for models without one."""
    if is_small(name):
        return None
    folder = BUNDLED.get(name, Path(name).expanduser())
    if not folder.is_dir():
        return name if "/" in name else None
    files = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
    return str(folder) if any((folder / file).is_file() for file in files) else None


def check_bundled(name: str) -> None:
    path = BUNDLED[name] / "model.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != BUNDLED_SHA256[name]:
        raise ModelError(
            f"{path} has SHA-256 {digest[:16]}..., not the {BUNDLED_SHA256[name][:16]}... of this version: "
            "it is damaged or was changed; install subbit again, or give your own weights as model=FOLDER"
        )


def _bundled(name: str, classes: int, key: int, pooling: str, input_shape: tuple[int, ...] | None) -> Classifier:
    """Without transformers, which takes seconds to import. Its features are the mean of the tokens, by default."""
    from subbit.data.batches import Preprocess

    if input_shape is not None and len(input_shape) != 3:
        raise ModelError(f"{name}: inputs of shape {input_shape}; needs {IMAGES[1]}")
    check_bundled(name)
    folder = BUNDLED[name]
    sizes = read_sizes(folder)
    preprocess = Preprocess(sizes.image_size, sizes.num_channels, *_normalisation(str(folder), "main", clip=False))
    head = kaiming_(nn.Linear(sizes.hidden_size, classes), key)
    return Classifier(load_vit(folder), head, "mean" if pooling == "auto" else pooling, preprocess)


def _small(name: str, classes: int, key: int, input_shape: tuple[int, ...] | None) -> nn.Module:
    from subbit.data.batches import Preprocess

    ranks, needed = INPUTS.get(name, IMAGES) if name in _OURS else ((1, 2, 3, 4), "any shape")
    if input_shape is None or len(input_shape) not in ranks or min(input_shape) < 1:
        raise ModelError(f"model {name!r}: inputs of shape {input_shape}; needs {needed}")
    with torch_randomness(derive_key(key, "backbone")), blaming(f"model {name!r}", SMALL_MODELS[name]):
        network = SMALL_MODELS[name](input_shape, classes)
    if not isinstance(network, nn.Module):
        raise ModelError(f"model {name!r}: made {type(network).__name__}, needs a torch.nn.Module")
    if not isinstance(network, SmallNetwork):
        return network  # From a plugin: inputs are not preprocessed and its random weights are kept.
    if network.preprocess is None and not isinstance(network, CharLstm):
        middle, width = (0.0, 1.0) if name in FROM_ZERO else (0.5, 0.5)
        network.preprocess = Preprocess(network.image_size, mean=middle, std=width)
    kaiming_(network.head, key)
    return network


def _transformers_model(
    source: str,
    classes: int,
    key: int,
    pretrained: bool,
    pooling: str,
    input_shape: tuple[int, ...] | None,
    revision: str,
) -> Classifier:
    from transformers import AutoConfig

    from subbit.data.batches import Preprocess

    config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    architecture = read_architecture(source, config, pooling, revision)
    if input_shape is not None:
        architecture.check_inputs(input_shape)
    model = architecture.load() if pretrained else architecture.random()
    preprocess = None
    if architecture.kind != "text":
        mean, std = _normalisation(source, revision, clip=config.model_type in ("clip", "clip_vision_model"))
        channels = getattr(architecture.config, "num_channels", 3)
        preprocess = Preprocess(architecture.image_size, channels, mean, std)
    head = kaiming_(nn.Linear(architecture.width, classes), key)
    return architecture.classifier(model, head, preprocess)


def _normalisation(source: str, revision: str, clip: bool) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of the pixels that the model was trained on, from the file next to its weights."""
    settings = _preprocessor_settings(source, revision)
    if settings.get("do_normalize") is False:
        return [0.0], [1.0]
    default = (CLIP_MEAN, CLIP_STD) if clip else ([0.5], [0.5])
    mean, std = settings.get("image_mean", default[0]), settings.get("image_std", default[1])
    for values in (mean, std):
        if not isinstance(values, list) or not values or not all(isinstance(value, int | float) for value in values):
            raise ModelError(f"{source}: preprocessor_config.json has image_mean or image_std {values}, needs numbers")
    if len(mean) != len(std) or min(std) <= 0:
        raise ModelError(f"{source}: preprocessor_config.json has image_mean {mean} and image_std {std}")
    return mean, std


def _preprocessor_settings(source: str, revision: str) -> dict[str, Any]:
    file_name = "preprocessor_config.json"
    path = Path(source) / file_name
    if not Path(source).is_dir():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            path = Path(hf_hub_download(source, file_name, revision=revision))
        except LocalEntryNotFoundError:
            raise  # Unreachable does not mean missing: another normalisation would silently be another model.
        except EntryNotFoundError:
            return {}
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not isinstance(settings, dict):
        raise ModelError(f"{path} holds no JSON object")
    return settings


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn errors of transformers, the hub and safetensors into one line that says what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ModelError(
            f"cannot load model {name!r}: {reason}. Needed: a hub name and a network (or an earlier download, and "
            "HF_HUB_OFFLINE=1 to look no further), or a folder with config.json and model.safetensors"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the progress bars and loading tables of transformers."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
