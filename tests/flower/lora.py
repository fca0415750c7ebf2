"""State dicts of peft's LoRA adapters on a tiny Llama, as FlowerTune's apps send them."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from tests.peft.language_models import language_model


def adapters(rank: int = 4, dtype: torch.dtype = torch.float32, cast: bool = True) -> dict[str, torch.Tensor]:
    """`cast` is peft's default: adapters in float32, whatever the model has."""
    base = language_model("llama").to(dtype)
    model = get_peft_model(base, LoraConfig(r=rank, task_type="CAUSAL_LM"), autocast_adapter_dtype=cast)
    return get_peft_model_state_dict(model)


def lora_app(mod: Any, changed: dict[int, ArrayRecord], dtype: torch.dtype = torch.float32) -> ClientApp:
    """Clients that add 0.01 to every value; those of `changed` send something else."""
    app = ClientApp(mods=[mod] if mod is not None else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrived = message.content["arrays"].to_torch_state_dict()
        assert {tensor.dtype for tensor in arrived.values()} == {dtype}
        trained = ArrayRecord({name: tensor + 0.01 for name, tensor in arrived.items()})
        arrays = changed.get(context.node_id, trained)
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 5})}), reply_to=message)

    return app
