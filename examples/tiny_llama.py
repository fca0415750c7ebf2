"""A Llama small enough for a processor, pre-trained on half of the pages of Python's reference, with its tokenizer.

Written as any model of the Hugging Face Hub, so that the app loads it like one: `model.name` is its folder.
"""

from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, LENGTH, BATCH = 512, 32, 16


def write_tiny_llama(folder: Path, steps: int = 300) -> None:
    text = "\n".join(topics[name] for name in sorted(topics)[::2])
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text], vocab_size=VOCABULARY, special_tokens=["<pad>"], show_progress=False)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, pad_token="<pad>").save_pretrained(folder)
    tokens = torch.tensor(tokenizer.encode(text).ids)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1)
    for _ in range(steps):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH, 1))
        batch = tokens[starts + torch.arange(LENGTH)]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
