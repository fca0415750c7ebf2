"""What the server does: average the adapters, and measure the perplexity of texts that no client trains on."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from lora_app.dataset import PACKAGES, load_partition
from lora_app.measure import MeasuredGrid
from lora_app.models import get_model, perplexity
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from subbit.flower import compress

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings, rounds = context.run_config, context.run_config["num-server-rounds"]
    torch.manual_seed(settings["seed"])
    model = get_model(settings)
    strategy = FedAvg(fraction_train=settings["strategy.fraction-train"], fraction_evaluate=0.0)
    if settings["compress"]:
        strategy = compress(codec="eden", bits=1).strategy(strategy)  # Line two of two.

    def evaluate(round_number: int, arrays: ArrayRecord) -> MetricRecord:
        """The place for `model.save_pretrained(...)`, too: the arrays are those of the app without compression."""
        if 0 < round_number < rounds:
            return MetricRecord()
        set_peft_model_state_dict(model, arrays.to_torch_state_dict())
        held_out = [load_partition(partition, settings)[1] for partition in range(len(PACKAGES))]
        return MetricRecord({"perplexity": perplexity(model, held_out)})

    counted = MeasuredGrid(grid)
    result = strategy.start(
        grid=counted,
        initial_arrays=ArrayRecord(get_peft_model_state_dict(model)),
        train_config=ConfigRecord(),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
    before, after = (result.evaluate_metrics_serverapp[number]["perplexity"] for number in (0, rounds))
    print(f"uplink {counted.uplink_bytes} bytes in {counted.replies} replies, downlink {counted.downlink_bytes} bytes")
    print(f"perplexity {before:.4f} to {after:.4f}")
