"""Who participates in a round."""

from __future__ import annotations

from subbit.core.randomness import derive_key, numpy_generator


def choose_participants(candidates: list[int], asked: int, seed: int, phase: str, number: int) -> tuple[int, ...]:
    """A uniform choice without replacement that depends only on the seed and the round."""
    if asked >= len(candidates):
        return tuple(candidates)
    generator = numpy_generator(derive_key(seed, f"participants-{phase}", number))
    return tuple(sorted(int(client) for client in generator.choice(candidates, asked, replace=False)))
