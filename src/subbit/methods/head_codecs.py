"""How clients send their statistics when the head is fitted: what the key `head_codec` says, and what it stands for."""

from __future__ import annotations

from subbit.methods.head_fits import CodedDiscriminant, Discriminant, FactoredDiscriminant, Fit
from subbit.methods.lean_fit import LeanDiscriminant

DISCRIMINANTS: dict[str, type[Fit]] = {
    "float32": Discriminant,
    "factors": FactoredDiscriminant,
    "lean": LeanDiscriminant,
}
"""All others have a key of `subbit.methods.head_fits.CODECS`."""


def head_codec(name: str) -> str:
    """What `auto` means."""
    return "factors" if name == "auto" else name


def fitted_by(kind: type[Fit], codec: str) -> type[Fit]:
    """The discriminant that sends its statistics in this way."""
    return DISCRIMINANTS.get(head_codec(codec), CodedDiscriminant) if kind is Discriminant else kind
