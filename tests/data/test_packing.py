"""Texts of owners as rows of tokens: packed or one row each, by the tokenizer of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from paper_writers import write_text

from subbit.core.errors import ConfigError, DataError
from subbit.data import Examples, load_dataset, partition
from subbit.data.folio import read_folio
from subbit.data.needs import Reading
from subbit.data.packing import Texts, pack, packed_source
from subbit.data.plays import find_plays
from subbit.data.speeches import KINDS
from subbit.objectives import find_objective

LANGUAGE = find_objective("language")
BYTES = Reading(LANGUAGE, "bytes")


def spelt(tokens: torch.Tensor) -> str:
    return bytes(tokens.flatten().tolist()).decode().replace("\0", "|")


def write_play(folder: Path, name: str, roles: dict[str, list[str]]) -> None:
    """In turns; a turn of a role is its next speech."""
    lines = ["A play", ""]
    for turn in range(max(map(len, roles.values()))):
        for role, speeches in roles.items():
            if turn < len(speeches):
                lines += ["", f"{role}.", speeches[turn], ""]
    write_text(folder / f"{name}_gut.txt", "\n".join(lines))


def test_packing_by_hand() -> None:
    """3 + 1 + 4 + 1 + 1 + 1 tokens with their ends are 11: two rows of four and three tokens of a third. The text that
    already ends with the end token gets no second one."""
    tokens, attention = pack([[5, 6, 7], [8, 9, 5, 6], [2, 0]], length=4, end=0)
    assert tokens.tolist() == [[5, 6, 7, 0], [8, 9, 5, 6], [0, 2, 0, 0]]
    assert attention.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]
    assert [part.shape for part in pack([], length=4, end=0)] == [(0, 4), (0, 4)]
    full, seen = pack([[1, 2, 3]], length=4, end=9)
    assert (full.tolist(), seen.tolist()) == ([[1, 2, 3, 9]], [[1, 1, 1, 1]]), "no row of padding alone"


def test_no_row_has_texts_of_two_owners() -> None:
    """Owners take turns, lengths differ; every row spells a part of its owner's own texts, in their order."""
    texts = ["aaa", "bbbbbbb", "a", "b", "aaaaaaaaaa", "cc"]
    owners = ["A", "B", "A", "B", "A", "C"]
    source = packed_source(Texts("here", texts, owners), "bytes", 4)
    tokens = source.read(np.arange(len(source.labels)))
    assert isinstance(tokens, dict)
    rows = [spelt(row[seen.bool()]) for row, seen in zip(tokens["input_ids"], tokens["attention_mask"], strict=True)]
    joined: dict[str, str] = {}
    for owner, row in zip(source.owners or (), rows, strict=True):
        joined[owner] = joined.get(owner, "") + row
    assert joined == {"A": "aaa|a|aaaaaaaaaa|", "B": "bbbbbbb|b|", "C": "cc|"}
    assert list(source.owners or ()) == ["A"] * 5 + ["B"] * 3 + ["C"]


def test_padding_counts_neither_in_the_loss_nor_in_the_score() -> None:
    """Random outputs: what they say at and before padding changes nothing."""
    tokens, attention = pack([[5, 6]], length=6, end=1)
    batch = LANGUAGE.prepare(
        Examples({"input_ids": tokens, "attention_mask": attention}, torch.zeros((1, 0), dtype=torch.int64))
    )
    assert batch.labels.tolist() == [[5, 6, 1, -100, -100, -100]], "the end of the text is to be learned, padding not"
    outputs = torch.randn(1, 6, 8)
    other = torch.cat([outputs[:, :2], torch.randn(1, 4, 8)], dim=1)
    assert torch.equal(LANGUAGE.loss(outputs, batch), LANGUAGE.loss(other, batch))
    assert torch.equal(LANGUAGE.tally(outputs, batch), LANGUAGE.tally(other, batch))
    assert LANGUAGE.tally(outputs, batch)[0, 2] == 2


def test_speeches_of_roles(tmp_path: Path) -> None:
    """HAM has five speeches of 3 letters: the first four are 16 tokens with their ends, two rows of eight; the last is
    the test. KING has two, so one of each."""
    write_play(tmp_path, "hamlet", {"HAM": ["abc", "def", "ghi", "jkl", "mno"], "KING": ["pqrstuvwx", "yz"]})
    write_play(tmp_path, "macbeth", {"HAM": ["one", "two"]})
    data = load_dataset(f"{tmp_path}?length=8", reading=BYTES)
    assert data.train.owners == ("hamlet/HAM",) * 2 + ("hamlet/KING",) * 2 + ("macbeth/HAM",)
    assert spelt(data.train.inputs["input_ids"]) == "abc|def|ghi|jkl|pqrstuvwx|||||||one|||||"
    assert data.train.inputs["attention_mask"].sum(1).tolist() == [8, 8, 8, 2, 4]
    assert spelt(data.test.inputs["input_ids"]) == "mno|||||yz||||||two|||||"
    assert data.test.owners == ("hamlet/HAM", "hamlet/KING", "macbeth/HAM")
    assert [list(part) for part in partition(data.train, 2, "natural")] == [[0, 1], [2, 3]]
    longest = load_dataset(f"{tmp_path}?length=8&roles=1", reading=BYTES)
    assert set(longest.train.owners or ()) == set(longest.test.owners or ()) == {"hamlet/HAM"}, "12 letters, not 9"
    again = load_dataset(f"{tmp_path}?length=8", reading=BYTES, seed=7)
    assert torch.equal(again.train.inputs["input_ids"], data.train.inputs["input_ids"])


FOLIO = """
Actus Primus.

Enter Barnardo and Horatio.

   Hor. Tush, tush, 'twill not appeare

   1. Lord. Sit downe a-while,
And let vs once againe
  Hor. Looke:
Enter the Ghost.

Is not this lost, after a direction?

   Hor.
Stay.

   1. Lord. Say what, is Horatio there?
"""


def test_plays_as_printed_in_1623(tmp_path: Path) -> None:
    assert list(read_folio(FOLIO)) == [
        ("HOR", "Tush, tush, 'twill not appeare"),
        ("1", "Lord. Sit downe a-while,\nAnd let vs once againe"),
        ("HOR", "Looke:"),
        ("HOR", "Stay."),
        ("1", "Lord. Say what, is Horatio there?"),
    ]
    write_text(tmp_path / "titus_andronicus_gut_f.txt", FOLIO)
    write_play(tmp_path, "tragedy_of_titus_andronicus", {"HAM": ["abc", "def"]})
    name = f"{tmp_path}?plays=tragedy_of_titus_andronicus"
    owners = {
        spelling: load_dataset(f"{name}&spelling={spelling}", reading=BYTES).train.owners
        for spelling in ("modern", "folio")
    }
    assert owners["modern"] == ("tragedy_of_titus_andronicus/HAM",)
    assert owners["folio"] == ("tragedy_of_titus_andronicus/1", "tragedy_of_titus_andronicus/HOR")


def test_one_row_per_text(tmp_path: Path) -> None:
    write_play(tmp_path, "hamlet", {"HAM": ["abcdefgh", "ij"]})
    data = load_dataset(f"{tmp_path}?length=4&pack=false", reading=BYTES)
    assert spelt(data.train.inputs["input_ids"]) == "abcd"
    assert spelt(data.test.inputs["input_ids"]) == "ij||"
    assert data.test.labels.tolist() == [[105, 106, -100, -100]]


def test_which_plays(tmp_path: Path) -> None:
    for play in (*KINDS["tragedies"], "henry_v"):
        write_play(tmp_path, play, {"ONE": ["abc", "def"]})

    def owners(plays: str) -> list[str]:
        data = load_dataset(f"{tmp_path}?plays={plays}", reading=BYTES)
        return [owner.removesuffix("/ONE") for owner in data.train.owners or ()]

    assert owners("tragedies") == sorted(KINDS["tragedies"])
    assert owners("henry_v,lear") == ["henry_v", "lear"]
    assert len(owners("all")) == 11
    with pytest.raises(DataError, match=r"found no play 'henry_iv_part_1'; need all, comedies, histories, tragedies"):
        owners("histories")
    assert len({play for plays in KINDS.values() for play in plays}) == sum(map(len, KINDS.values())) == 37


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("pack=maybe", "found pack=maybe; need true or false"),
        ("spelling=old", "found spelling=old; need modern or folio"),
        ("length=1", "need at least 2 tokens"),
        ("stride=8", "the options are tokenizer, length, pack, plays, roles, spelling"),
        ("tokenizer=/nowhere", "tokenizer=/nowhere: cannot be used"),
    ],
)
def test_wrong_options(tmp_path: Path, options: str, message: str) -> None:
    write_play(tmp_path, "hamlet", {"HAM": ["abcdefgh", "ij"]})
    with pytest.raises((ConfigError, DataError), match=message):
        load_dataset(f"{tmp_path}?{options}", reading=BYTES)


def test_other_objectives_read_characters_as_before(tmp_path: Path) -> None:
    write_play(tmp_path, "hamlet", {"HAM": ["x" * 100, "y" * 100]})
    assert load_dataset(str(tmp_path)).classes == 80
    assert find_plays(tmp_path) == {"hamlet": tmp_path / "hamlet_gut.txt"}


def test_tables_of_texts(tmp_path: Path) -> None:
    """Rows of an owner are packed after the split into train and test."""
    rows = "".join(f"{owner},{text}\n" for owner in "AB" for text in ("abc", "de", "f", "ghijk", "lm"))
    write_text(tmp_path / "texts.csv", f"who,body\n{rows}")
    name = f"{tmp_path / 'texts.csv'}?text=body&owner=who&tokenizer=bytes&length=8&pack=true"
    data = load_dataset(name, reading=BYTES)
    texts = {}
    for split in (data.train, data.test):
        for owner in "AB":
            own = [place for place, each in enumerate(split.owners or ()) if each == owner]
            chosen = split.select(np.array(own)).inputs
            texts[owner] = texts.get(owner, []) + spelt(chosen["input_ids"][chosen["attention_mask"].bool()]).split("|")
    for owner in "AB":
        assert sorted(filter(None, texts[owner])) == ["abc", "de", "f", "ghijk", "lm"]
    with pytest.raises(ConfigError, match=r"found pack=true; it is for texts without labels and objective=language"):
        load_dataset(name + "&label=who")


def test_the_tokenizer_of_a_model(tmp_path: Path) -> None:
    """A tokenizer of transformers without an end token can only be used without packing."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<end>": 0, "to": 1, "be": 2, "or": 3, "?": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(tmp_path / "with")
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="?").save_pretrained(tmp_path / "without")
    write_play(tmp_path, "hamlet", {"HAM": ["To be or not", "to be"]})
    reading = Reading(LANGUAGE, str(tmp_path / "with"))
    data = load_dataset(f"{tmp_path}?length=3", reading=reading)
    assert data.train.inputs["input_ids"].tolist() == [[4, 2, 3], [4, 0, 0]]
    assert data.test.inputs["input_ids"].tolist() == [[1, 2, 0]]
    with pytest.raises(DataError, match=r"has no end-of-text token, .* need one that has, or pack=false"):
        load_dataset(f"{tmp_path}?length=3&tokenizer={tmp_path / 'without'}", reading=reading)
