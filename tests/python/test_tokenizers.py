"""Texts become tokens, and tokens texts, as transformers' AutoTokenizer makes them of the same files."""

import importlib.util
import json
import random
import shutil

import numpy
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from program import ROOT, SMALL, run, write_config

STORIES = ROOT / "assets/stories260K"
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
CORPUS = [
    "Once upon a time there was a little girl, and she didn't like rain.",
    "Zürich — 5 €; naïve café. x² + y² = 10 \t tab\nnew line",
    "def f(x): return x ** 2  # two  spaces",
    "ΑΒΓ абв 漢字 🙂",
]


def hf_tokenizer_module():
    """The program's own Python, which here asks the transformers of this process."""
    specification = importlib.util.spec_from_file_location("hf_tokenizer", ROOT / "src/nereus/runtime/bridge/hf_tokenizer.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.ask_transformers = lambda directory, source: json.loads(json.dumps(module.transformers_reading(directory)))
    return module


OURS = hf_tokenizer_module()


def trained(model, trainer, pre_tokenizer, decoder=None, normalizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def byte_level():
    return trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )


def word_piece():
    return trained(
        models.WordPiece(unk_token="<unk>"),
        trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
        normalizers.BertNormalizer(),
    )


def unigram():
    return trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
        normalizers.NFKC(),
    )


def word_level():
    return trained(
        models.WordLevel(unk_token="<unk>"),
        trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False),
        pre_tokenizers.Whitespace(),
    )


def stories():
    return Tokenizer.from_file(str(STORIES / "tokenizer.json"))


BACKENDS = {make.__name__: make for make in (byte_level, word_piece, unigram, word_level, stories)}
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


class Files:
    """A tokenizer's directory; config: tokenizer_config.json, others: files by name."""

    def __init__(self, tokenizer):
        self.tokenizer, self.config, self.others = tokenizer, dict(CONFIG), {}

    def write(self, directory):
        directory.mkdir()
        self.tokenizer.save(str(directory / "tokenizer.json"))
        for name, content in {"tokenizer_config.json": self.config, **self.others}.items():
            if content is not None:
                (directory / name).write_text(json.dumps(content))
        return directory


def added(content, special=True, **flags):
    return {"content": content, "special": special, "lstrip": False, "rstrip": False, "single_word": False,
            "normalized": False, **flags}


def with_marks(files):
    files.tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )


def truncated(files):
    files.tokenizer.enable_truncation(3)


def padded(files):
    files.tokenizer.enable_padding(length=20, pad_id=0, pad_token="<unk>")


def padded_with_a_new_token(files):
    files.tokenizer.enable_padding(length=20, pad_id=0, pad_token="<|fill|>")


def only_in_the_decoder(files):
    count = files.tokenizer.get_vocab_size()
    tokens = ["<|im_start|>", "<|im_end|>"]
    files.config["added_tokens_decoder"] = {str(count + i): added(token) for i, token in enumerate(tokens)}


def decoder_with_flags(files):
    flags = [dict(special=False, lstrip=True), dict(rstrip=True), dict(special=False, single_word=True),
             dict(special=False, normalized=True, lstrip=True, rstrip=True)]
    tokens = ["<|im_start|>", "<|im_end|>", "girl", "Rain"]
    files.config["added_tokens_decoder"] = {
        # Ids that leave a hole, and out of order.
        str(1000 - 7 * i): added(token, **flag) for i, (token, flag) in enumerate(zip(tokens, flags))
    }


def decoder_that_disagrees(files):
    """Tokens that tokenizer.json has, with other flags."""
    files.config["added_tokens_decoder"] = {
        "1": added("<s>", special=False, rstrip=True), "2": added("</s>", lstrip=True)}


def older_files(files):
    count = files.tokenizer.get_vocab_size()
    files.others["special_tokens_map.json"] = {
        "eos_token": {"content": "<|im_end|>", "lstrip": True, "rstrip": False, "normalized": False,
                      "single_word": False},
        "additional_special_tokens": ["<|im_start|>"], "pad_token": "</s>"}
    files.others["added_tokens.json"] = {"<|im_start|>": count, "<|im_end|>": count + 1, "girl": count + 2}


def additional(files):
    files.config["additional_special_tokens"] = ["<|im_start|>", "<|im_end|>"]


def extra_list(files):
    files.config["extra_special_tokens"] = ["<|im_start|>", {"__type": "AddedToken", **added("<|im_end|>")}]


def extra_by_name(files):
    files.config["extra_special_tokens"] = {"image_token": "<|im_start|>", "end_token": "<|im_end|>"}


def tokens_as_objects(files):
    files.config |= {"bos_token": {"__type": "AddedToken", **added("<s>", lstrip=True)},
                     "pad_token": {"__type": "AddedToken", **added("<|im_end|>", rstrip=True)}}


def known_tokens_as_objects(files):
    files.config |= {"bos_token": {"__type": "AddedToken", **added("<s>", lstrip=True)},
                     "eos_token": {"__type": "AddedToken", **added("</s>", special=False)}}


def new_named_tokens(files):
    files.config |= {"eos_token": "<|im_end|>", "cls_token": "girl", "audio_token": "<|im_start|>"}


def adds_bos(files):
    files.config |= {"add_bos_token": True, "add_eos_token": True}


def llama_class(files):
    adds_bos(files)
    files.config["tokenizer_class"] = "LlamaTokenizerFast"


def no_class(files):
    del files.config["tokenizer_class"]
    files.others["config.json"] = {"model_type": "llama"}


def qwen2_model(files):
    files.others["config.json"] = {"model_type": "qwen2"}


def qwen3_without_config(files):
    files.others |= {"config.json": {"model_type": "qwen3"}, "tokenizer_config.json": None}


def only_tokenizer_json(files):
    files.others["tokenizer_config.json"] = None


def splits_special_tokens(files):
    files.config["split_special_tokens"] = True


def cleans_up(files):
    files.config["clean_up_tokenization_spaces"] = True


def added_in_tokenizer_json(files):
    files.tokenizer.add_special_tokens([AddedToken("<|im_start|>", rstrip=True), "<|im_end|>"])
    files.tokenizer.add_tokens([AddedToken("girl", single_word=True, lstrip=True)])


def everything(files):
    for change in (with_marks, truncated, padded, added_in_tokenizer_json, decoder_with_flags, cleans_up):
        change(files)
    files.config["additional_special_tokens"] = ["<|more|>"]


def nothing(files):
    pass


VARIANTS = {
    change.__name__: change
    for change in (
        nothing, with_marks, truncated, padded, padded_with_a_new_token, only_in_the_decoder, decoder_with_flags,
        decoder_that_disagrees, older_files, additional, extra_list, extra_by_name, tokens_as_objects,
        known_tokens_as_objects, new_named_tokens, adds_bos, llama_class, no_class, qwen2_model,
        qwen3_without_config, only_tokenizer_json,
        splits_special_tokens, cleans_up, added_in_tokenizer_json, everything,
    )
}
MARKS = ["<s>", "</s>", "<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<|more|>", "girl", "rain", " ", "\n", "  "]


def texts(seed):
    noise = random.Random(seed)
    letters = "abc ABC,.!?'€éß漢🙂\u0301\u200d\u00a0\t\x00\x7f"
    made = ["", " ", "<s>", "<s><s>Once", " <s> Once </s> ", "it is n't , is it ?", "<|im_start|>user\nhi<|im_end|>\n"]
    for _ in range(12):
        pieces = [noise.choice(MARKS) if noise.random() < 0.4 else
                  "".join(noise.choice(letters) for _ in range(noise.randrange(6))) for _ in range(noise.randrange(9))]
        made.append("".join(pieces))
    return made + CORPUS


def once(ids, prefix):
    """`ids` without a second mark of the beginning."""
    length = len(prefix)
    return ids[length:] if prefix and ids[: 2 * length] == prefix * 2 else ids


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_and_texts_are_those_of_transformers(tmp_path, backend, variant):
    files = Files(BACKENDS[backend]())
    VARIANTS[variant](files)
    directory = files.write(tmp_path / "tokenizer")
    try:
        reference = AutoTokenizer.from_pretrained(directory)
    except Exception:
        with pytest.raises(Exception):
            OURS.HfTokenizer(str(directory), "")
        return
    tokenizer = OURS.HfTokenizer(str(directory), "")
    ordinary = reference("a").input_ids
    prefix = ordinary[: ordinary.index(reference("a", add_special_tokens=False).input_ids[0])]
    for text in texts(f"{backend} {variant}"):
        assert tokenizer.encode(text, True) == once(reference(text).input_ids, prefix), text
        assert tokenizer.encode(text, False) == reference(text, add_special_tokens=False).input_ids, text
    noise = random.Random(variant)
    batch = [[noise.randrange(len(reference) + 3) for _ in range(noise.randrange(12))] for _ in range(30)]
    assert tokenizer.decode_batch(batch) == [reference.decode(ids, skip_special_tokens=True) for ids in batch]
    known = set(reference.get_vocab().values())
    assert tokenizer.missing_ids(1010) == [token for token in range(1010) if token not in known]
    assert len(known) == len(reference)


def test_plain_files_are_read_without_transformers(tmp_path, monkeypatch):
    monkeypatch.delattr(OURS, "transformers_reading")
    for name in ("nothing", "with_marks", "truncated", "adds_bos", "only_tokenizer_json", "cleans_up",
                 "known_tokens_as_objects", "no_class"):
        files = Files(stories())
        VARIANTS[name](files)
        OURS.HfTokenizer(str(files.write(tmp_path / name)), "")


CHAT = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{{ eos_token }}
{% endfor %}<|im_start|>assistant"""


def padded_model(directory, rows):
    """stories260K with more rows than its tokenizer has tokens, each more likely than a full stop."""
    shutil.copytree(STORIES, directory)
    weights = load_file(directory / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    stop = stories().token_to_id(".")
    more = 2 * numpy.repeat(embedding[stop : stop + 1], rows, 0)
    weights["model.embed_tokens.weight"] = numpy.concatenate([embedding, more])
    save_file(weights, directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"vocab_size": 512 + rows}))
    return directory


@pytest.mark.parametrize("prompt", ["<s>Once upon a time", [{"role": "user", "content": "Once <s> upon"}]], ids=str)
@pytest.mark.parametrize("variant", ["nothing", "truncated", "padded", "only_in_the_decoder", "llama_class"])
def test_the_program_counts_the_tokens_of_transformers(tmp_path, variant, prompt):
    model = padded_model(tmp_path / "model", rows=8)
    files = Files(stories())
    VARIANTS[variant](files)
    files.config["chat_template"] = CHAT
    shutil.copytree(files.write(tmp_path / "tokenizer"), model, dirs_exist_ok=True)
    reference = AutoTokenizer.from_pretrained(model)
    if isinstance(prompt, str):
        expected = once(reference(prompt).input_ids, [1])
    else:
        expected = reference.apply_chat_template(prompt, return_dict=True).input_ids
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": prompt}) + "\n")
    done = run("check", write_config(tmp_path), f"data.train_files={prompts}", f"critic.model.path={model}",
               f"actor_rollout_ref.model.path={model}", "data.max_prompt_length=200")
    assert f"longest {len(expected)} tokens" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("layout", ["{dp: 2}", "{tp: 2}", "{pp: 2}"])
def test_rows_that_are_no_token_are_never_drawn(tmp_path, layout):
    models = {"plain": STORIES, "padded": padded_model(tmp_path / "model", rows=51)}
    config = write_config(tmp_path, SMALL.replace("{dp: 2}", layout))
    for name, model in models.items():
        done = run("train", config, "--run-dir", tmp_path / name, f"actor_rollout_ref.model.path={model}",
                   f"critic.model.path={model}", f"trainer.rollout_data_dir={tmp_path}/{name}_texts",
                   "data.val_files=assets/prompts/stories.jsonl", "trainer.total_training_steps=1")
        assert done.returncode == 0, done.stderr
    texts = [[json.loads(line) for line in (tmp_path / f"{name}_texts" / "1.jsonl").read_text().splitlines()]
             for name in models]
    assert [row["output"] for row in texts[0]] == [row["output"] for row in texts[1]]
    before = [next(event for event in map(json.loads, (tmp_path / name / "events.jsonl").read_text().splitlines())
                   if event["type"] == "validation")["metrics"] for name in models]
    assert before[0]["val-core/unknown/reward/mean@1"] == before[1]["val-core/unknown/reward/mean@1"]
    # Log-probabilities of generation and of training are of the same distribution all the same.
    metrics = json.loads((tmp_path / "padded" / "metrics.jsonl").read_text().splitlines()[0])
    assert metrics["training/rollout_probs_diff_max"] < 1e-4
