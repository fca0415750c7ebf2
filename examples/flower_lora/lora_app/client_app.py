"""What a client does: train the adapters that arrive on its own texts and send them back."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from lora_app.dataset import load_partition
from lora_app.models import cosine_annealing, fine_tune, get_model
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from subbit.flower import compress

app = ClientApp(mods=[compress(codec="eden", bits=1)])  # Line one of two; before, `app = ClientApp()`.


@app.train()
def train(message: Message, context: Context) -> Message:
    settings, round_number = context.run_config, message.content["config"]["server-round"]
    partition = context.node_config["partition-id"]
    model = get_model(settings)
    set_peft_model_state_dict(model, message.content["arrays"].to_torch_state_dict())
    texts = load_partition(partition, settings)[0]
    learning_rate = cosine_annealing(
        round_number,
        settings["num-server-rounds"],
        settings["train.learning-rate-max"],
        settings["train.learning-rate-min"],
    )
    seed = 1_000_000 * settings["seed"] + 1_000 * round_number + partition
    loss = fine_tune(model, texts, settings["train.max-steps"], settings["train.batch-size"], learning_rate, seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(texts)})
    arrays = ArrayRecord(get_peft_model_state_dict(model))
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
