"""The mask of one task as one small file: which weights of a base are kept, and the few values that no mask makes.

    file = safetensors: `mask`          the bits over the selected parameters, by the codec "mask" (exact)
                        `value/NAME`    every tensor that is neither the base's nor a mask of it, e.g. a fitted head
                        `sha256`        over all of the others
                        metadata        one JSON object, `MaskDescription`

The base itself is not in the file. It is identified by SHA-256 over its tensors, so that a mask can only be applied to
the weights it was trained on. A reader believes nothing: the file must be, byte for byte, what `to_bytes` makes of
what was read, the selection must give the reader's own base the same names and shapes, and the bits are decoded into
as many places as that base has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors
from torch import Tensor, nn

from subbit.codecs import Shared, make_codec
from subbit.codecs.bits import pack_bits
from subbit.config.values import build, require
from subbit.errors import ConfigError, FrameError, SubbitError
from subbit.export.runs import TrainedRun
from subbit.models import FlatModel, select_parameters
from subbit.randomness import derive_key
from subbit.runtime.workplace import Workplace, count_blocks

CODEC = make_codec("mask")
VALUE = "value/"
LONGEST_DESCRIPTION = 1 << 20
# A base that is built from a file's description must not be as large as the file likes: beyond, give it as a module.
MOST_CLASSES, MOST_INPUTS = 1 << 16, 1 << 18


@dataclass(frozen=True)
class MaskDescription:
    """What a mask belongs to. `model` to `pooling` build the base where it has a name, `base` says whether it is it."""

    model: str
    model_key: int
    classes: int
    input_shape: str
    """Of one input, e.g. 1x28x28."""
    pretrained: bool
    pooling: str
    base: str
    """SHA-256 of all tensors of the base but those for which the file has values."""
    selection: str
    template: str
    """Hash of the names and shapes of the selected parameters."""
    batchnorm: Literal["frozen", "batch", "average"]
    run: str
    method: str
    network: str
    rounds: int
    client: int | None = None
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        require(1 <= self.classes <= MOST_CLASSES, f"classes={self.classes}: needs 1 to {MOST_CLASSES}")
        require(
            1 <= int(np.prod(self.shape)) <= MOST_INPUTS, f"input_shape={self.input_shape}: needs at most {MOST_INPUTS}"
        )
        require(0 <= self.model_key < 1 << 64, f"model_key={self.model_key}: needs 64 bits")

    @property
    def shape(self) -> tuple[int, ...]:
        sides = self.input_shape.split("x")
        plausible = len(sides) <= 4 and all(side.isascii() and side.isdigit() and len(side) <= 6 for side in sides)
        require(plausible, f"input_shape={self.input_shape[:40]!r}: needs up to four numbers, e.g. 1x28x28")
        return tuple(int(side) for side in sides)


@dataclass(frozen=True)
class MaskFile:
    """A mask as it is stored: its bits still encoded, because only the base says how many there are."""

    description: MaskDescription
    payload: bytes
    values: dict[str, NDArray[np.float32]]

    def to_bytes(self) -> bytes:
        tensors: dict[str, NDArray[Any]] = {VALUE + name: value for name, value in sorted(self.values.items())}
        tensors["mask"] = np.frombuffer(self.payload, dtype=np.uint8)
        text = json.dumps(asdict(self.description), sort_keys=True)
        tensors["sha256"] = np.frombuffer(_checksum(text, tensors), dtype=np.uint8)
        return write_tensors(tensors, {"subbit": text})

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskFile:
        """`FrameError` for anything that `to_bytes` would not have written."""
        try:
            return cls._read(data)
        except FrameError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError, SubbitError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise FrameError("value", f"not a mask file: {reason[0][:200]}") from None

    @classmethod
    def _read(cls, data: bytes) -> MaskFile:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > min(len(data) - 8, LONGEST_DESCRIPTION):
            raise FrameError("truncated", f"not a mask file: {len(data)} bytes that begin {data[:8].hex()}")
        text = json.loads(data[8 : 8 + length])["__metadata__"]["subbit"]
        description = build(MaskDescription, dict(json.loads(text)))
        tensors = read_tensors(data)
        values = {name.removeprefix(VALUE): array for name, array in tensors.items() if name.startswith(VALUE)}
        for name, array in values.items():
            require(
                array.dtype == np.float32 and bool(np.isfinite(array).all()), f"{name}: needs finite float32 values"
            )
        found = cls(description, tensors["mask"].tobytes(), values)
        if found.to_bytes() != data:
            raise FrameError("checksum", "mask file is damaged: its bytes are not those that its contents make")
        return found


def mask_of_run(trained: TrainedRun) -> MaskFile:
    """What turns the run's base into the network that stands in the module."""
    workplace, flat = trained.workplace, trained.flat
    written = module_tensors(workplace.module)
    base = base_tensors(workplace.problem.module, flat)
    if base.keys() != written.keys():
        added = sorted(written.keys() - base.keys())
        raise ConfigError(
            f"{workplace.settings.run.method} adds {added[0]} to the model: a mask file has no place for it"
        )
    kept, masked, values = [], 0, {}
    for name, network in written.items():
        if name in flat.template.names:
            ones = network != 0
            is_mask = torch.equal(base[name] * ones, network)
            masked += is_mask
            kept.append((ones if is_mask else torch.zeros_like(ones)).reshape(-1))
            if is_mask:
                continue
        elif torch.equal(base[name], network):
            continue
        require(network.dtype == torch.float32, f"{name} is {network.dtype} and was changed: a mask file holds float32")
        values[name] = network.detach().numpy().copy()
    if not masked:
        raise ConfigError(
            f"the {trained.network} network of {workplace.settings.run.method} is no mask on frozen weights: "
            "a mask file holds the runs of mask methods, e.g. deltamask"
        )
    bits = pack_bits(torch.cat(kept).numpy())
    description = _describe(trained, digest(base, values))
    return MaskFile(description, CODEC.encode(bits, Shared(flat.template.size)), values)


def _describe(trained: TrainedRun, base: str) -> MaskDescription:
    workplace, flat = trained.workplace, trained.flat
    run, problem = workplace.settings.run, workplace.problem
    return MaskDescription(
        model=problem.model_name,
        model_key=derive_key(run.seed, "model"),
        classes=problem.classes,
        input_shape="x".join(str(side) for side in problem.train.inputs.shape[1:]),
        pretrained=run.pretrained,
        pooling=run.pooling,
        base=base,
        selection=_selection(workplace, flat),
        template=flat.template.digest().hex(),
        batchnorm=run.batchnorm,
        run=run.name,
        method=run.method,
        network=trained.network,
        rounds=trained.rounds,
        client=trained.client,
    )


def _selection(workplace: Workplace, flat: FlatModel) -> str:
    """The run's own words where they say it all, else every name."""
    run, module = workplace.settings.run, workplace.module
    words = run.select
    if words == "auto":
        words = workplace.method("main").default_selection(count_blocks(module), workplace.problem.pretrained)
    names = list(flat.template.names)
    return words if select_parameters(module, words) == names else " + ".join(names)


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, in the order of the module: what is no state (a mean of pixels) counts, too."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def base_tensors(module: nn.Module, flat: FlatModel) -> dict[str, Tensor]:
    """The tensors of the module as they are, the selected ones as the flat model found them."""
    initial = dict(zip(flat.template.names, flat.template.views(flat.initial), strict=True))
    return {**module_tensors(module), **initial}


def digest(tensors: Mapping[str, Tensor], without: Iterable[str]) -> str:
    """SHA-256 of sorted names, types, shapes and raw bytes."""
    result = hashlib.sha256()
    for name in sorted(tensors.keys() - set(without)):
        tensor = tensors[name].detach().cpu().contiguous()
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        result.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()


def _checksum(text: str, tensors: Mapping[str, NDArray[Any]]) -> bytes:
    result = hashlib.sha256(text.encode())
    for name, array in sorted(tensors.items()):
        result.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        result.update(np.ascontiguousarray(array).data)
    return result.digest()
