"""The language model and its adapters, training and testing. Nothing here knows of Flower."""

import math

import torch
from transformers import AutoModelForCausalLM

from peft import LoraConfig, get_peft_model


def get_model(settings):
    """Only the adapters of the model are trained, and sent."""
    model = AutoModelForCausalLM.from_pretrained(settings["model.name"])
    adapters = LoraConfig(
        r=settings["model.lora-r"],
        lora_alpha=settings["model.lora-alpha"],
        lora_dropout=0.075,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, adapters)


def cosine_annealing(round_number, rounds, largest, smallest):
    """The learning rate of a round; it is constant within the round."""
    return smallest + 0.5 * (largest - smallest) * (1 + math.cos(math.pi * round_number / rounds))


def fine_tune(model, texts, steps, batch_size, learning_rate, seed):
    """The mean loss. Most apps have trl's SFTTrainer here; this is the same without its dependencies."""
    torch.manual_seed(seed)
    model.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate)
    total = 0.0
    for _ in range(steps):
        batch = texts[torch.randint(len(texts), (batch_size,))]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        total += loss.item()
    return total / steps


def perplexity(model, texts_of_clients):
    """Every client counts the same."""
    model.eval()
    with torch.no_grad():
        losses = [model(input_ids=texts, labels=texts).loss.item() for texts in texts_of_clients]
    return math.exp(sum(losses) / len(losses))
