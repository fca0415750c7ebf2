"""A causal language model from a configuration of transformers: `python examples/own_language.py`.

The text is Python's own reference, which every Python has; each client has some of its pages. Tokens are bytes. A data
set is a list of texts, and `collate` makes the dict of tensors that the module takes. Labels are not needed: they are
the tokens, except padding.
"""

from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from subbit import fine_tune

LENGTH = 64


def collate(texts: list[str]) -> dict[str, torch.Tensor]:
    tokens = [torch.tensor(list(text.encode()[:LENGTH])) for text in texts]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    return {"input_ids": padded, "attention_mask": (padded > 0).long()}


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    paragraphs = [text.strip() for page in topics.values() for text in page.split("\n\n") if text.strip()]
    clients = [paragraphs[start : start + 200] for start in (0, 500, 1000)]
    result = fine_tune(
        GPT2LMHeadModel(config), clients, paragraphs[2000:2100], collate=collate, objective="language",
        method="fedavg", rounds=4, learning_rate=0.01, batch_size=16,
    )  # fmt: skip
    print(f"perplexity {result.score_before:.0f} -> {result.score:.1f}")
    assert result.score < 30 < result.score_before
