"""Tiny language models of transformers, and sentences that they can learn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subbit.core.randomness import torch_generator, torch_randomness

VOCABULARY, LENGTH = 24, 10
FAMILIES = ("gpt2", "llama", "llama-tied")


def language_model(family: str) -> Any:
    import transformers

    with torch_randomness(5):
        if family == "gpt2":
            config = transformers.GPT2Config(
                vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=3, n_head=2, bos_token_id=1, eos_token_id=2
            )
            return transformers.GPT2LMHeadModel(config)
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=3,
                num_attention_heads=2,
                max_position_embeddings=16,
                tie_word_embeddings=family == "llama-tied",
            )
        )


def sentences(count: int, seed: int = 0) -> dict[str, Tensor]:
    """Counting up, from anywhere, with padding at the end."""
    generator = torch_generator(seed)
    start = torch.randint(3, VOCABULARY, (count, 1), generator=generator)
    tokens = 3 + (start - 3 + torch.arange(LENGTH)) % (VOCABULARY - 3)
    lengths = torch.randint(6, LENGTH + 1, (count, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {
        "input_ids": tokens * mask,
        "attention_mask": mask,
        "labels": tokens.masked_fill(mask == 0, -100),
    }
