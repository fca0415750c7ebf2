import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from example_networks import CLASSES, TINY
from torch import nn

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator, torch_randomness
from subbit.models.classifier import Classifier
from subbit.models.flat import FlatModel, model_sha256
from subbit.models.head_start import kaiming_
from subbit.models.load_model import BUNDLED, CLIP_MEAN, CLIP_STD, load_classifier
from subbit.models.select import find_blocks, select_parameters

IMAGES = torch.randint(0, 256, (2, 1, 28, 28), dtype=torch.uint8, generator=torch_generator(0))
BLOCK_WEIGHTS = {"vit": 4 * 16**2 + 2 * 16 * 32, "clip": 4 * 16**2 + 2 * 16 * 32, "dinov2": 4 * 16**2 + 2 * 16 * 64}
LISTS = {"vit": "backbone.layers", "clip": "backbone.encoder.layers", "dinov2": "backbone.encoder.layer"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny models of each family in the format of transformers, and the modules they were written from."""
    from transformers import (
        CLIPConfig,
        CLIPModel,
        CLIPVisionConfig,
        CLIPVisionModel,
        Dinov2Config,
        Dinov2Model,
        ViTConfig,
        ViTModel,
    )

    tower = TINY | {"intermediate_size": 32}
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50000}
    with torch_randomness(3):
        models = {
            "vit": ViTModel(ViTConfig(**tower)),
            "clip": CLIPVisionModel(CLIPVisionConfig(**tower)),
            "dinov2": Dinov2Model(Dinov2Config(**TINY)),
            "both-towers": CLIPModel(CLIPConfig(text_config=text, vision_config=tower)),
        }
    written = {}
    for name, model in models.items():
        path = tmp_path_factory.mktemp(name)
        model.save_pretrained(path)
        written[name] = (str(path), model.eval())
    return written


def write_preprocessor(folder, text):
    (folder / "preprocessor_config.json").write_text(text)


def tiny_vit(folder, **options):
    from transformers import ViTConfig, ViTModel

    ViTModel(ViTConfig(**TINY, intermediate_size=32, **options), add_pooling_layer=False).save_pretrained(folder)


@pytest.mark.parametrize("family", ["vit", "clip", "dinov2"])
def test_folders_of_transformers(folders, family):
    path, written = folders[family]
    state = torch.get_rng_state()
    classifier = load_classifier(path, CLASSES, key=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert find_blocks(classifier) == (LISTS[family], 3)
    assert len(select_parameters(classifier, "last 2 blocks: weights")) == 2 * 6
    flat = FlatModel(classifier, "last 2 blocks: weights")
    assert flat.template.size == 2 * BLOCK_WEIGHTS[family]
    flat.evaluation_mode()
    output = written(pixel_values=classifier.preprocess(IMAGES))
    expected = output.pooler_output if family == "clip" else output.last_hidden_state[:, 0]
    torch.testing.assert_close(classifier.features(IMAGES), expected)
    assert classifier(IMAGES).shape == (2, CLASSES)
    assert torch.equal(classifier.head.weight, kaiming_(nn.Linear(16, CLASSES), 4).weight)
    unread = [name for name, _ in classifier.named_parameters() if "pooler" in name]
    assert not unread  # Nothing that the features do not depend on is there to be trained.


def test_vision_tower_of_a_whole_clip(folders):
    path, written = folders["both-towers"]
    classifier = load_classifier(path, CLASSES, key=0).eval()
    expected = written.vision_model(pixel_values=classifier.preprocess(IMAGES)).pooler_output
    torch.testing.assert_close(classifier.features(IMAGES), expected)
    assert not select_parameters(classifier, "backbone")[0].startswith("backbone.text")
    pixel = torch.tensor(CLIP_MEAN), torch.tensor(CLIP_STD)
    black = classifier.preprocess(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))
    torch.testing.assert_close(black[0, :, 0, 0], -pixel[0] / pixel[1])


def test_random_weights_from_a_key(folders):
    path, _ = folders["vit"]
    state = torch.get_rng_state()
    copies = [load_classifier(path, CLASSES, key=key, pretrained=False) for key in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    digests = [model_sha256(copy) for copy in copies]
    assert digests[0] == digests[1] != digests[2]
    pretrained = load_classifier(path, CLASSES, key=1)
    assert select_parameters(pretrained, "all") == select_parameters(copies[0], "all")
    assert torch.equal(pretrained.head.weight, copies[0].head.weight)
    name = "backbone.layers.0.mlp.fc1.weight"
    assert not torch.equal(pretrained.get_parameter(name), copies[0].get_parameter(name))


def test_pooling(folders):
    path, written = folders["vit"]
    for pooling in ("cls", "mean", "pooled"):
        classifier = load_classifier(path, CLASSES, key=0, pooling=pooling).eval()
        output = written(pixel_values=classifier.preprocess(IMAGES))
        expected = {
            "cls": output.last_hidden_state[:, 0],
            "mean": output.last_hidden_state[:, 1:].mean(1),
            "pooled": output.pooler_output,
        }[pooling]
        torch.testing.assert_close(classifier.features(IMAGES), expected)
    with pytest.raises(ModelError, match="cls, mean, pooled"):
        load_classifier(path, CLASSES, key=0, pooling="max")


def test_pooling_of_the_config(tmp_path):
    tiny_vit(tmp_path, pooling="mean")
    assert load_classifier(str(tmp_path), CLASSES, key=0).pooling == "mean"
    with pytest.raises(ModelError, match=r"lacks 2 weights of its backbone, e\.g\. pooler"):
        load_classifier(str(tmp_path), CLASSES, key=0, pooling="pooled")


def test_preprocessor_config_is_honoured(tmp_path):
    """A pixel of 51 is 0.2: (0.2 - 0.1) / 0.5 = 0.2, (0.2 - 0.2) / 0.25 = 0, (0.2 - 0.6) / 0.2 = -2."""
    tiny_vit(tmp_path)
    image = torch.full((1, 1, 16, 16), 51, dtype=torch.uint8)
    plain = load_classifier(str(tmp_path), CLASSES, key=0).preprocess(image)
    torch.testing.assert_close(plain, torch.full((1, 3, 16, 16), -0.6))
    write_preprocessor(tmp_path, json.dumps({"image_mean": [0.1, 0.2, 0.6], "image_std": [0.5, 0.25, 0.2]}))
    prepared = load_classifier(str(tmp_path), CLASSES, key=0).preprocess(image)
    torch.testing.assert_close(prepared[0, :, 3, 3], torch.tensor([0.2, 0.0, -2.0]))
    write_preprocessor(tmp_path, json.dumps({"do_normalize": False, "image_mean": [0.1, 0.2, 0.6]}))
    prepared = load_classifier(str(tmp_path), CLASSES, key=0).preprocess(image)
    torch.testing.assert_close(prepared, torch.full((1, 3, 16, 16), 0.2))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"image_mean": "0.5"}',
        '{"image_mean": [0.1], "image_std": [0.5, 0.5, 0.5]}',
        '{"image_mean": [0.1, 0.1, 0.1], "image_std": [0, 1, 1]}',
    ],
)
def test_damaged_preprocessor_config(tmp_path, text):
    tiny_vit(tmp_path)
    write_preprocessor(tmp_path, text)
    with pytest.raises(ModelError):
        load_classifier(str(tmp_path), CLASSES, key=0)


def test_damaged_checkpoints(tmp_path):
    from safetensors.torch import load_file, save_file

    def message():
        with pytest.raises(ModelError) as caught:
            load_classifier(str(tmp_path), CLASSES, key=0)
        return str(caught.value)

    assert "config.json" in message()  # An empty folder.
    tiny_vit(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name, tensor in tensors.items() if tensor.shape == (32, 16))
    save_file({key: value for key, value in tensors.items() if key != name}, weights, metadata={"format": "pt"})
    assert "lacks 1 weights" in message()
    save_file(tensors | {name: torch.zeros(3, 3)}, weights, metadata={"format": "pt"})
    assert "cannot load" in message() or "lacks" in message()
    weights.write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    assert "cannot load" in message()
    weights.unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")  # Pickle is never read.
    assert "model.safetensors" in message()
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    assert "unheard-of" in message()


def test_models_that_translate_are_refused(tmp_path):
    from transformers import T5Config

    T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="'t5' model: needs one that takes images alone"):
        load_classifier(str(tmp_path), CLASSES, key=0)


def test_models_that_continue_a_text(tmp_path):
    """They are padded with the token that ends a text, here 2, and their last token has seen the others."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch_randomness(5):
        written = GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=12, bos_token_id=1, eos_token_id=2)
        ).eval()
    written.save_pretrained(tmp_path)
    tokens = torch.tensor([[5, 7, 9, 3, 2, 2], [6, 11, 3, 2, 2, 2]])
    classifier = load_classifier(str(tmp_path), CLASSES, key=0, input_shape=(6,)).eval()
    alone = [written.transformer(text).last_hidden_state[:, -1] for text in (tokens[:1, :4], tokens[1:, :3])]
    torch.testing.assert_close(classifier.features(tokens), torch.cat(alone))
    mean = load_classifier(str(tmp_path), CLASSES, key=0, pooling="mean").eval()
    torch.testing.assert_close(mean.features(tokens[:1]), written.transformer(tokens[:1, :4]).last_hidden_state.mean(1))
    with pytest.raises(ModelError, match="first token has seen no other one: use pooling=last"):
        load_classifier(str(tmp_path), CLASSES, key=0, pooling="cls")


def bert(folder, **options):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    with torch_randomness(5):
        model = BertModel(BertConfig(**sizes, vocab_size=40, max_position_embeddings=12, **options))
    model.save_pretrained(folder)
    return model.eval()


def test_encoder_of_texts(tmp_path):
    written = bert(tmp_path)
    tokens = torch.tensor([[2, 7, 9, 3, 0, 0], [2, 11, 3, 0, 0, 0]])
    for pooling in ("auto", "cls", "mean"):
        classifier = load_classifier(str(tmp_path), CLASSES, key=0, pooling=pooling, input_shape=(6,)).eval()
        expected = {
            "auto": lambda output: output.pooler_output,
            "cls": lambda output: output.last_hidden_state[:, 0],
            "mean": lambda output: output.last_hidden_state.mean(1),
        }[pooling]
        # What padding is appended to must not know of it.
        alone = torch.cat([expected(written(tokens[:1, :4])), expected(written(tokens[1:, :3]))])
        torch.testing.assert_close(classifier.features(tokens), alone)
    assert classifier(torch.zeros(1, 6, dtype=torch.int64)).isfinite().all()  # A text of padding alone.
    with pytest.raises(ModelError, match="token numbers"):
        classifier(torch.zeros(1, 3, 16, 16))
    with pytest.raises(ModelError, match="at most 12 tokens"):
        load_classifier(str(tmp_path), CLASSES, key=0, input_shape=(13,))


def test_video_model(tmp_path):
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    config = VideoMAEConfig(**TINY, intermediate_size=32, num_frames=4, num_labels=7)
    with torch_randomness(5):
        written = VideoMAEForVideoClassification(config)
        nn.init.normal_(written.fc_norm.weight)
    written.save_pretrained(tmp_path)
    size = config.image_size
    video = torch.randint(0, 256, (2, 4, 3, size, size), dtype=torch.uint8, generator=torch_generator(0))
    classifier = load_classifier(str(tmp_path), CLASSES, key=0, input_shape=tuple(video.shape[1:])).eval()
    pixels = torch.stack([classifier.preprocess(frames) for frames in video])
    expected = written.eval().fc_norm(written.videomae(pixels).last_hidden_state.mean(1))
    torch.testing.assert_close(classifier.features(video), expected)
    assert classifier(video).shape == (2, CLASSES)
    with pytest.raises(ModelError, match="needs videos of 4 frames"):
        load_classifier(str(tmp_path), CLASSES, key=0, input_shape=(5, 3, size, size))
    with pytest.raises(ModelError, match="no class token"):
        load_classifier(str(tmp_path), CLASSES, key=0, pooling="cls")


def test_convolutional_backbone_of_transformers(tmp_path):
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(tmp_path)
    for pooling in ("mean", "pooled"):
        classifier = load_classifier(str(tmp_path), CLASSES, key=0, pooling=pooling).eval()
        assert classifier.features(IMAGES).shape == (2, 12)
    with pytest.raises(ModelError, match="no class token"):
        load_classifier(str(tmp_path), CLASSES, key=0, pooling="cls")(IMAGES)


def test_unknown_names(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="did you mean 'conv4'"):
        load_classifier("convv4", CLASSES, key=0)
    with pytest.raises(ModelError, match=r"cannot load model 'nobody/nothing'.*HF_HUB_OFFLINE.*folder"):
        load_classifier("nobody/nothing", CLASSES, key=0)
    with pytest.raises(ModelError, match="at least 1"):
        load_classifier("mlp", 0, key=0, input_shape=(3,))


def test_loading_prints_nothing(folders, capfd):
    load_classifier(folders["both-towers"][0], CLASSES, key=0)
    assert capfd.readouterr() == ("", "")


def test_classifier_of_any_module():
    classifier = Classifier(nn.Flatten(), nn.Linear(4, 2))
    assert classifier(torch.ones(3, 2, 2)).shape == (3, 2)
    assert torch.equal(classifier.features(torch.ones(3, 2, 2)), torch.ones(3, 4))


@pytest.mark.skipif(not (BUNDLED["subbit/vit-micro"] / "model.safetensors").exists(), reason="not trained yet")
def test_bundled_transformer():
    classifier = load_classifier("subbit/vit-micro", CLASSES, key=0).eval()
    assert find_blocks(classifier) == ("backbone.layers", 8)
    assert classifier.pooling == "mean"
    assert sum(parameter.numel() for parameter in classifier.backbone.parameters()) == 905_952
    black, white = classifier.preprocess(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    assert (black.unique().tolist(), white.unique().tolist()) == ([-1.0], [1.0])
    assert classifier.features(IMAGES).shape == (2, 96)


@pytest.mark.parametrize("training", [True, False])
def test_the_bundled_transformer_is_that_of_transformers_bit_for_bit(training):
    """The folder itself is loaded by transformers, the name without it."""
    ours = load_classifier("subbit/vit-micro", CLASSES, key=3)
    theirs = load_classifier(str(BUNDLED["subbit/vit-micro"]), CLASSES, key=3)
    assert "transformers" in type(theirs.backbone).__module__
    assert "transformers" not in type(ours.backbone).__module__
    found = []
    for network in (ours, theirs):
        logits = network.train(training)(IMAGES)
        logits.logsumexp(1).sum().backward()
        found.append({"logits": logits, **{name: weight.grad for name, weight in network.named_parameters()}})
    assert list(found[0]) == list(found[1])
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_bundled_weights_that_are_not_the_published_ones_are_refused(tmp_path, monkeypatch):
    """One bit of one weight: safetensors reads it without complaint, and the accuracy would not tell."""
    name = "subbit/vit-micro"
    shutil.copytree(BUNDLED[name], tmp_path, dirs_exist_ok=True)
    monkeypatch.setitem(BUNDLED, name, tmp_path)
    load_classifier(name, CLASSES, key=0)
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match=r"damaged or was changed; install subbit again"):
        load_classifier(name, CLASSES, key=0)
    load_classifier(name, CLASSES, key=0, pretrained=False)  # Reads no weights.


@pytest.mark.parametrize("model", ["subbit/vit-micro", "mlp"])
def test_a_revision_of_what_is_not_from_the_hub_is_refused(model):
    with pytest.raises(ModelError, match="not from the hub"):
        load_classifier(model, CLASSES, key=0, input_shape=(1, 28, 28), revision="v1")


def cached_model(cache, name, commits, branch):
    """A hub model with several commits in a cache, as an earlier download leaves it; `branch` is the commit of main."""
    folder = cache / f"models--{name.replace('/', '--')}"
    for seed, commit in enumerate(commits):
        with torch_randomness(seed):
            tiny_vit(folder / "snapshots" / commit)
        write_preprocessor(folder / "snapshots" / commit, json.dumps({"image_mean": [seed], "image_std": [1]}))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(branch)


def test_weights_and_normalisation_are_those_of_the_revision(tmp_path):
    """In a process of its own, because the hub's library reads where its cache is once, when it is imported."""
    commits = ["0" * 40, "1" * 40]
    cached_model(tmp_path, "someone/vit", commits, commits[1])
    code = f"""
from subbit.models.flat import model_sha256
from subbit.models.load_model import load_classifier
for revision in {(*commits, "main")!r}:
    network = load_classifier("someone/vit", 3, key=0, revision=revision)
    print(model_sha256(network), float(network.preprocess.mean.flatten()[0]))
"""
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    first, second, branch = printed.stdout.splitlines()
    assert first != second
    assert branch == second
    assert [float(line.split()[1]) for line in (first, second)] == [0, 1]
