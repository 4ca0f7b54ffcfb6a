"""Words of any text, and of PTB: packed whole, read in order, divided among ranks; a training from end to end."""

import json
import math
import zipfile

import forked_cli
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from repro import data
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import _shards
from repro.data import text as text_of_python
from repro.data._text import words
from repro.runs import run_folder
from repro.train import loop

PART = "The cat sat on the mat. ----- Did it? It did!!\n\nA dog\nsat too\n\n"
PTB = {"train": " the cat sat <unk> N \n the dog sat \n", "valid": " the cat \n", "test": " a cat sat \n"}


def load(name, root, *overrides):
    config = compose(["model=lstm_small", f"data={name}", f"data.root={root}", *overrides])[0]
    return data.load(config.data, config.seed)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text(60 * PART)
    data.prepare("text", folder / "a.txt", folder)
    return folder


def test_sentences_end_at_marks_and_at_empty_lines():
    assert words.sentences(PART) == [
        ["the", "cat", "sat", "on", "the", "mat", ".", "<eos>"],
        ["-", "did", "it", "?", "<eos>"],
        ["it", "did", "!", "<eos>"],
        ["a", "dog", "sat", "too", "<eos>"],
    ]
    assert words.lines(PTB["valid"]) == [["the", "cat", "<eos>"]]


def test_the_commonest_words_have_the_lowest_numbers_and_unknown_ones_are_0():
    arrays = words.numbered({"train": [["b", "a", "a", "<unk>"], ["a", "b", "c"]], "test": [["c", "z", "a"]]})
    vocabulary = arrays["vocabulary"].tobytes().decode().split("\n")
    assert vocabulary == ["<unk>", "a", "b", "c"]
    assert arrays["train"].tolist() == [2, 1, 1, 0, 1, 2, 3] and arrays["test"].tolist() == [3, 0, 1]


@given(samples=st.integers(1, 300), nodes=st.integers(1, 6), batch=st.integers(1, 6), start=st.integers(0, 9))
def test_rows_of_all_ranks_read_each_sample_once_and_go_on_where_they_were(samples, nodes, batch, start):
    if samples < nodes * batch:
        return
    of_ranks = [np.array(list(_shards.train_rows(samples, rank, nodes, batch, 0))) for rank in range(nodes)]
    seen = np.concatenate([batches.ravel() for batches in of_ranks])
    assert len(set(seen.tolist())) == len(seen) == samples // nodes // batch * nodes * batch
    assert all((np.diff(batches, axis=0) == 1).all() for batches in of_ranks)
    resumed = list(_shards.train_rows(samples, 0, nodes, batch, start))
    np.testing.assert_array_equal(np.array(resumed).reshape(-1, batch), of_ranks[0][start:])


@given(samples=st.integers(1, 300), nodes=st.integers(1, 30))
def test_the_rows_to_test_with_are_the_same_for_any_number_of_ranks(samples, nodes):
    alone = np.array(list(_shards.test_rows(samples, 0, 1)))
    parts = [np.array(list(_shards.test_rows(samples, rank, nodes))) for rank in range(nodes)]
    together = np.concatenate([part for part in parts if len(part)], axis=1)
    np.testing.assert_array_equal(np.sort(together, axis=1), alone)
    assert alone.size > samples - _shards.TEST_ROWS


def test_labels_are_the_words_that_follow(root):
    text = load("text", root, "data.sequence=7")
    inputs, labels = next(text.batches(0, 1, 2, 3))
    after, _ = list(text.batches(0, 1, 2, 3))[1]
    assert inputs.shape == (3, 7) and inputs.dtype == torch.int64 and labels.shape == (21,)
    assert torch.equal(labels.view(3, 7)[:, :-1], inputs[:, 1:]) and torch.equal(labels.view(3, 7)[:, -1], after[:, 0])
    assert text.test_steps(2, 250) == len(list(text.test_batches(0, 2, 250)))


def test_a_smaller_vocabulary_knows_the_commonest_words_alone(root):
    whole, few = (load("text", root, f"data.classes={count}").train.words for count in (2000, 4))
    assert few.max() == 3 and torch.equal(few, torch.where(whole < 4, whole, 0))


def test_a_folder_and_its_zip_give_the_same_bytes(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text(PART)
    (folder / "deep" / "a.txt").write_text(3 * PART)
    (folder / "C.TXT").write_text(PART)
    (folder / "no.md").write_text("not a text")
    (folder / "._b.txt").write_bytes(b"\xff beside each file that macOS packs")
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        for path in folder.rglob("*.*"):
            archive.write(path, path.relative_to(folder))
    for name in ("texts", "texts.zip"):
        data.prepare("text", tmp_path / name, tmp_path / f"of {name}")
    contents = [data.content("text", tmp_path / f"of {name}") for name in ("texts", "texts.zip")]
    assert contents[0].fingerprint == contents[1].fingerprint
    (folder / "C.TXT").unlink()
    data.prepare("text", folder, tmp_path / "less")
    assert data.content("text", tmp_path / "less").fingerprint != contents[0].fingerprint


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_is_told(how, tmp_path):
    """Whichever byte it is, of the text, of its name or of the index: a few are of no consequence."""
    with zipfile.ZipFile(tmp_path / "whole.zip", "w", how) as archive:
        archive.writestr("täxt.txt", 3 * PART)
    whole, told = (tmp_path / "whole.zip").read_bytes(), 0
    for at in range(len(whole)):
        (tmp_path / "bad.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            words.read(tmp_path / "bad.zip")
        except ConfigError:
            told += 1
    assert told > len(whole) / 2


def test_ptb_is_packed_from_its_three_files(tmp_path):
    (tmp_path / "simple" / "data").mkdir(parents=True)
    for part, text in PTB.items():
        (tmp_path / "simple" / "data" / f"ptb.{part}.txt").write_text(40 * text)
    data.prepare("ptb", tmp_path / "simple", tmp_path)
    (row,) = [row for row in data.status(tmp_path) if row["name"] == "ptb"]
    assert (row["state"], row["classes"], row["images"]) == ("ready", 7, (400, 120))  # <unk>, <eos>, the, cat, sat ...
    valid, test = (load("ptb", tmp_path, f"data.held_out={name}", "data.sequence=2") for name in ("valid", "test"))
    assert (valid.test_size, test.test_size) == (59, 79)
    assert valid.fingerprint == test.fingerprint == data.content("ptb", tmp_path).fingerprint


@pytest.mark.parametrize(
    ("name", "made", "message"),
    [
        ("ptb", None, "PTB is not published for everyone.*--from FOLDER_OR_ZIP"),
        ("ptb", {"ptb.train.txt": b"a"}, "holds 0 files ptb.valid.txt; one is needed"),
        ("text", {"a.md": b"a"}, "holds no .txt file"),
        ("text", {"a.txt": b"\xff\xfe\xfa"}, "a.txt is no UTF-8 text"),
        ("text", "nowhere", "nowhere does not exist"),
        ("text", {"a.txt": b""}, "its text to train with has 0 words"),
        ("text", {"a.txt": b"One. Two. Three."}, "its text to test with has 0 words.* Take a longer text"),
    ],
)
def test_what_is_no_text_is_told(name, made, message, tmp_path):
    source = made if made is None else tmp_path / "source"
    if isinstance(made, str):
        source = tmp_path / made
    if isinstance(made, dict):
        source.mkdir()
        for file, content in made.items():
            (source / file).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        data.prepare(name, source, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_text_that_the_disk_cannot_give_is_named(tmp_path):
    (tmp_path / "a.txt").symlink_to("/proc/self/mem")  # an input/output error
    for source in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(ConfigError, match="a.txt cannot be read: Input/output error"):
            data.prepare("text", source, tmp_path / "root")


def test_a_text_too_short_to_test_with_is_told(tmp_path):
    (tmp_path / "a.txt").write_text(10 * PART)
    data.prepare("text", tmp_path / "a.txt", tmp_path)
    with pytest.raises(ConfigError, match="less than one sample of data.sequence=35. Take a longer text"):
        load("text", tmp_path)


def test_without_a_source_it_is_pythons_reference_each_paragraph_once(tmp_path):
    path = data.prepare("text", None, tmp_path)
    (row,) = [row for row in data.status(tmp_path) if row["name"] == "text"]
    assert row["state"] == "ready" and row["path"] == path and row["images"][0] > 50_000
    assert data.content("text", tmp_path).description.startswith("text (reference of Python 3.")


def test_perplexity_is_exp_of_the_loss_a_word_and_the_same_on_any_number_of_nodes(root, tmp_path):
    """With lr=0 all runs evaluate the first weights, on rows of 1 and of 3 nodes; a real command says it."""
    losses = []
    for nodes in (1, 3):
        words = [
            "run", "model=lstm_small", "model.width=6", "data.classes=15", "data.sequence=5", "lr=0",
            "steps=2", "batch_per_node=2", f"nodes={nodes}", "algo=dense", f"data.root={root}", "wandb.mode=disabled",
        ]  # fmt: skip
        if nodes == 1:
            done = forked_cli.repro(*words, cwd=tmp_path)
            assert done.returncode == 0 and "perplexity" in done.stdout
            assert "test perplexity" in done.stderr and "sequences/s" in done.stderr
        config = compose([*words[1:], f"results={tmp_path / 'results' / 'runs'}"])[0]
        loop.run(config)
        (line,) = [line for line in run_folder.read_metrics(config.folder) if line["kind"] == "eval"]
        assert line["test_perplexity"] == pytest.approx(math.exp(line["test_loss"])) and "test_accuracy" not in line
        losses.append(line["test_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    status = forked_cli.repro("status", cwd=tmp_path)
    assert "perplexity" in status.stdout and "accuracy" not in status.stdout
    assert json.loads((config.folder / "provenance.json").read_text())["data"] == "text (a.txt)"


def test_a_text_is_read_from_its_beginning_in_each_epoch(tmp_path, root):
    """Of a network that learns nothing both epochs have the same losses, as no state goes from one to the next."""
    words = ["model.width=6", "model.dropout=0", "data.classes=15", "data.sequence=5", "lr=0", "epochs=2", "nodes=1"]
    where = [f"data.root={root}", f"results={tmp_path}", "batch_per_node=2", "algo=dense", "wandb.mode=disabled"]
    (config,) = compose(["model=lstm_small", *words, *where])
    loop.run(config)
    losses = [line["loss"] for line in run_folder.read_metrics(config.folder) if line["kind"] == "step"]
    half = len(losses) // 2
    assert losses[:half] == losses[half:] and losses[0] not in losses[1:half]


def test_no_sentence_to_test_with_is_trained_on(tmp_path):
    """Every tenth of a text, at its end; of Python's reference a percent stands in several paragraphs."""
    text = ". ".join(f"the {number} cats sat" for number in "abcdefghijklmnopqrst") + "."
    (tmp_path / "text.txt").write_text(text)
    data.prepare("text", tmp_path / "text.txt", tmp_path)
    found = load("text", tmp_path, "data.sequence=2")
    counts = [len(words.sentences(text)), len(found.train.words) + len(found.test.words)]
    own = {name: set(part.words.tolist()) for name, part in (("train", found.train), ("test", found.test))}
    assert counts == [20, sum(map(len, words.sentences(text)))] and len(found.test.words) == counts[1] // 10
    assert len(own["test"] - own["train"]) >= 1
    sentences = [tuple(one) for one in words.sentences(text_of_python._reference())]
    last = len(sentences) - len(sentences) // text_of_python.TEST
    long = [one for one in sentences[last:] if len(one) > 8]
    assert sum(one in set(sentences[:last]) for one in set(long)) < 0.01 * len(long)
