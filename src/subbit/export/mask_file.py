"""The mask of one task as one small file: which weights of a base are kept, and the few values a mask cannot express.

    `mask`          the bits over the selected parameters, with the codec "mask" (exact)
    `value/NAME`    every tensor that is neither in the base nor a masked one, e.g. a fitted head
    description     `MaskDescription`, as JSON; the file is one of `subbit.export.mask_container`

The base itself is not in the file. It is identified by a SHA-256 of its tensors, so that a mask can only be applied to
the weights it was trained on. The selection must yield the same names and shapes in the reader's base, which also
determines the number of bits to decode.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.codecs import Bits, Shared, make_codec
from subbit.codecs.packed import pack_bits
from subbit.core.errors import ConfigError, FrameError
from subbit.core.values import require
from subbit.export.frozen import describe_preparation, frozen_weights
from subbit.export.mask_container import pack, unpack
from subbit.export.recipe import Recipe, build_description, module_tensors, recipe_values
from subbit.export.runs import TrainedRun
from subbit.models import FlatModel, Template, select_parameters
from subbit.models.frozen_weights import is_quantised
from subbit.models.precision import HALVES
from subbit.runtime.workplace import count_blocks

CODEC = make_codec("mask")
VALUE = "value/"
FULL = 1 << 32  # A threshold is a probability times 2^32.


@dataclass(frozen=True, kw_only=True)
class MaskDescription(Recipe):
    """What a mask belongs to: how to build its base, and how to verify it."""

    base: str
    """SHA-256 of all tensors of the base except those for which the file has values."""
    selection: str
    template: str
    """Hash of the names and shapes of the selected parameters."""
    ones: str
    """Number of kept places of each selected parameter, e.g. 19200,6000. Layers differ, which the codec uses."""
    batchnorm: Literal["frozen", "batch", "average"]
    preparation: str | None = None
    """If the method masks weights other than the base's own: how to draw them (`subbit.export.frozen`)."""
    run: str
    method: str
    network: str
    rounds: int
    client: int | None = None
    format: Literal[1] = 1


@dataclass(frozen=True)
class MaskFile:
    """A mask as stored: its bits are still encoded, because their number follows from the base."""

    description: MaskDescription
    payload: bytes
    values: dict[str, NDArray[np.float32]]

    def to_bytes(self) -> bytes:
        tensors: dict[str, NDArray[Any]] = {VALUE + name: value for name, value in self.values.items()}
        tensors["mask"] = np.frombuffer(self.payload, dtype=np.uint8)
        return pack("mask", asdict(self.description), tensors)

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskFile:
        """Raises `FrameError` for anything that `to_bytes` would not have written."""
        described, tensors = unpack("mask", data)
        description = build_description(MaskDescription, described)
        mask = tensors.pop("mask", None)
        if mask is None or mask.dtype != np.uint8 or mask.ndim != 1:
            raise FrameError("value", "a mask file without a mask")
        for name, array in tensors.items():
            if not name.startswith(VALUE) or array.dtype != np.float32 or not np.isfinite(array).all():
                raise FrameError("value", f"{name} in a mask file: needs finite float32 values")
        return cls(description, mask.tobytes(), {name.removeprefix(VALUE): array for name, array in tensors.items()})


def mask_of_run(trained: TrainedRun) -> MaskFile:
    """The mask that turns the run's base into the network in the module."""
    method, flat = trained.workplace.method("main"), trained.flat
    network_tensors = module_tensors(trained.workplace.module)
    base = masked_base(trained.workplace.problem.module, flat, frozen_weights(method))
    # Layers of lower precision with masked weights have become float32.
    base |= {
        name: base[name].to(tensor.dtype)
        for name, tensor in network_tensors.items()
        if name in base and base[name].dtype in HALVES
    }
    kept: list[Tensor] = []
    masked, values = 0, {}
    for name, network in network_tensors.items():
        require(name in base, f"{method.name} adds {name} to the model: a mask file has no place for it")
        if name in flat.template.names:
            ones = network != 0
            is_mask = torch.equal(base[name] * ones, network)
            masked += is_mask
            kept.append((ones if is_mask else torch.zeros_like(ones)).reshape(-1))
            if is_mask:
                continue
        elif is_quantised(network) or torch.equal(base[name].to(network.dtype), network):
            continue
        require(network.dtype == torch.float32, f"{name} is {network.dtype} and was changed: a mask file holds float32")
        values[name] = network.detach().numpy().copy()
    if not masked:
        raise ConfigError(
            f"the {trained.network} network of {method.name} is no mask on frozen weights: a mask file holds runs of "
            "mask methods, e.g. deltamask"
        )
    bits, counts = pack_bits(torch.cat(kept).numpy()), [int(tensor.sum()) for tensor in kept]
    description = MaskDescription(
        **recipe_values(trained.workplace),
        base=digest(base, values),
        selection=_selection(trained),
        template=flat.template.digest().hex(),
        ones=",".join(str(count) for count in counts),
        batchnorm=trained.workplace.settings.run.batchnorm,
        preparation=describe_preparation(trained.workplace),
        **trained.origin(),
    )
    return MaskFile(description, CODEC.encode(bits, known_rates(counts, flat.template)), values)


def _selection(trained: TrainedRun) -> str:
    """The run's `select` if it is sufficient, else all names."""
    workplace = trained.workplace
    words, names = workplace.settings.run.select, list(trained.flat.template.names)
    if words == "auto":
        blocks = count_blocks(workplace.module)
        method, parameters = workplace.method("main"), workplace.settings.parameters
        words = method.default_selection(parameters, blocks, workplace.problem.pretrained)
    # Whoever reads the file may have frozen what the run has trained, or the other way round.
    return words if select_parameters(workplace.module, words, even_frozen=True) == names else " + ".join(names)


def known_rates(ones: Sequence[int], template: Template) -> Shared:
    """What writer and reader of the bits know: the share of kept places in each parameter."""
    rates = [min(count * FULL // places, FULL - 1) for count, places in zip(ones, template.counts, strict=True)]
    return Shared(template.size, thresholds=np.repeat(np.array(rates, dtype=np.uint32), template.counts))


def decode_bits(file: MaskFile, template: Template) -> Bits:
    words = file.description.ones.split(",")
    counts = [int(word) for word in words if re.fullmatch("[0-9]{1,10}", word)]
    if len(counts) != len(template.counts) or any(map(operator.gt, counts, template.counts)):
        raise FrameError("value", f"{len(words)} counts of kept places do not fit {len(template.counts)} parameters")
    bits: Bits = CODEC.decode(file.payload, known_rates(counts, template))
    return bits


def masked_base(module: nn.Module, flat: FlatModel, frozen: Tensor) -> dict[str, Tensor]:
    """The module's tensors, with the selected ones replaced by the frozen weights."""
    return module_tensors(module) | dict(zip(flat.template.names, flat.template.views(frozen), strict=True))


def digest(tensors: Mapping[str, Tensor], without: Iterable[str]) -> str:
    """SHA-256 of sorted names, types, shapes and raw bytes."""
    result = hashlib.sha256()
    for name in sorted(tensors.keys() - set(without)):
        tensor = tensors[name].detach().cpu().contiguous()
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        result.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()
