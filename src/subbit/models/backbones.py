"""Models of transformers as classifiers: which part is the backbone and what is used as feature vector.

kind    input                                         default features
image   pixels [n, channels, height, width]           the class token; CLIP: its own pooled output
video   pixels [n, frames, channels, height, width]   VideoMAE: the mean of all tokens, after its last norm
text    token numbers [n, length], padded at the end  encoders such as BERT: pooled output, else the first token;
                                                      models that continue texts, such as GPT-2: the last token
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from torch import float32, nn

from subbit.core.errors import ModelError
from subbit.models.classifier import Classifier, Kind


@dataclass(frozen=True)
class Architecture:
    """What a transformers configuration tells about a network, before any weights exist."""

    source: str
    config: Any
    model_class: Any
    kind: Kind
    pooling: str
    options: dict[str, Any] = field(default_factory=dict)
    revision: str = "main"

    @property
    def width(self) -> int:
        """Width of the features. Convolutional networks of transformers list the widths of their stages instead."""
        config = self.config
        width = getattr(config, "hidden_size", None) or (getattr(config, "hidden_sizes", None) or [None])[-1]
        if not isinstance(width, int):
            raise ModelError(f"{self.source}: its configuration has no hidden_size")
        return width

    @property
    def image_size(self) -> int:
        size = getattr(self.config, "image_size", 224)
        if isinstance(size, list | tuple) and len(set(size)) == 1:
            size = size[0]
        if not isinstance(size, int):
            raise ModelError(f"{self.source} takes images of {size}: needs square ones")
        return size

    def check_inputs(self, shape: tuple[int, ...]) -> None:
        """Reject examples of a shape that this network cannot take."""
        config, frames = self.config, getattr(self.config, "num_frames", None)
        longest = getattr(config, "max_position_embeddings", None)
        dimensions, needed = {
            "image": (3, "images (channels, height, width)"),
            "video": (4, f"videos of {frames} frames (frames, channels, height, width)"),
            "text": (1, f"texts of at most {longest} tokens (length,)"),
        }[self.kind]
        too_long = self.kind == "text" and longest is not None and len(shape) == 1 and shape[0] > longest
        wrong_frames = self.kind == "video" and frames is not None and shape[:1] != (frames,)
        if len(shape) != dimensions or too_long or wrong_frames:
            raise ModelError(f"{self.source}: inputs of shape {shape}; needs {needed}")

    def random(self) -> nn.Module:
        model: nn.Module = self.model_class(self.config, **self.options).float()
        return model

    def load(self) -> nn.Module:
        """Load the network with all weights of its source."""
        model, report = self.model_class.from_pretrained(
            self.source,
            config=self.config,
            revision=self.revision,
            use_safetensors=True,
            dtype=float32,
            output_loading_info=True,
            **self.options,
        )
        absent = {*report["missing_keys"], *(str(entry) for entry in report["mismatched_keys"])}
        # Our own head replaces the classifier of a video model.
        lacking = sorted(name for name in absent if self.kind != "video" or "classifier." not in name)
        if lacking:
            hint = " (pooling=cls or mean needs no pooler)" if any("pooler" in name for name in lacking) else ""
            raise ModelError(f"{self.source} lacks {len(lacking)} weights of its backbone, e.g. {lacking[0]}{hint}")
        loaded: nn.Module = model
        return loaded

    def classifier(self, model: nn.Module, head: nn.Linear, preprocess: nn.Module | None = None) -> Classifier:
        if self.kind == "video":
            backbone, norm = model.get_submodule("videomae"), getattr(model, "fc_norm", None)
            return Classifier(backbone, head, self.pooling, preprocess, kind="video", norm=norm)
        made = Classifier(model, head, self.pooling, preprocess, kind=self.kind)
        made.padding = _padding(self.config) if self.kind == "text" else None
        return made


def read_architecture(source: str, config: Any, pooling: str, revision: str = "main") -> Architecture:
    """Determine the kind of network and the class that builds it. Rejects any other kind."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING as CAUSAL
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING, CLIPVisionModel, VideoMAEForVideoClassification

    kind: Kind = "image"
    natural = "cls"
    if config.model_type in ("clip", "clip_vision_model"):
        config, model_class, natural = getattr(config, "vision_config", config), CLIPVisionModel, "pooled"
    elif config.model_type == "videomae":
        model_class, kind, natural = VideoMAEForVideoClassification, "video", "mean"
    else:
        model_class = MODEL_MAPPING[type(config)]
    can_leave_out_pooler = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    takes = getattr(model_class, "main_input_name", None)
    # A masked language model sees the whole text; the first token of a generative one has seen nothing else.
    encodes_text = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not _generates(config)
    continues_text = type(config) in CAUSAL and not encodes_text and not getattr(config, "is_encoder_decoder", False)
    if takes == "input_ids" and encodes_text:
        kind, natural = "text", "pooled" if can_leave_out_pooler else "cls"
    elif takes == "input_ids" and continues_text and not hasattr(config, "text_config"):
        kind, natural = "text", "last"
        config.use_cache = False  # What generating text would need takes memory in every batch.
        if pooling == "cls":
            raise ModelError(f"{source}: its first token has seen no other one: use pooling=last or mean")
    elif takes != "pixel_values" or hasattr(config, "text_config"):
        raise ModelError(
            f"{source} is a {config.model_type!r} model: needs one that takes images alone, VideoMAE, "
            "or one of texts such as BERT or GPT-2"
        )
    if pooling == "auto":
        pooling = getattr(config, "pooling", natural)
    options: dict[str, Any] = {}
    if pooling != "pooled" and can_leave_out_pooler:
        options["add_pooling_layer"] = False  # Unused weights should not be trained and sent.
    return Architecture(source, config, model_class, kind, pooling, options, revision)


def _padding(config: Any) -> int | None:
    """Models without a token for padding, such as GPT-2, are usually padded with the one that ends a text."""
    padding = getattr(config, "pad_token_id", None)
    ends = getattr(config, "eos_token_id", None) if _continues(config) else None
    return padding if padding is not None else ends if isinstance(ends, int) else None


def _continues(config: Any) -> bool:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING


def _generates(config: Any) -> bool:
    return bool(getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False))
