"""A tokenizer's files, read as transformers reads them: its AutoTokenizer says what they mean.

Compiled into the program (hf_tokenizer.cpp). transformers runs in a process of its own and gives back what the
package tokenizers needs: it takes seconds to import, and none of it stays behind. Files that say no more than
tokenizer.json does are read without it (is_plain)."""

import json
import os
import subprocess
import sys

from tokenizers import AddedToken, Tokenizer

TIME_LIMIT = 300  # seconds
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Keys of tokenizer_config.json that change neither tokens nor texts. transformers ignores add_bos_token and
# add_eos_token where there is a tokenizer.json, whose post-processor says it.
HARMLESS = {"tokenizer_class", "model_max_length", "clean_up_tokenization_spaces", "chat_template", "padding_side",
            "truncation_side", "model_input_names", "add_bos_token", "add_eos_token"}
# Classes that take tokenizer.json as it is, unless the model has a class that transformers prefers.
PLAIN_CLASSES = {"PreTrainedTokenizerFast", "TokenizersBackend"}
PLAIN_MODELS = {"llama", "mistral", "qwen3", "qwen3_moe"}
CLASSLESS_MODELS = {"llama", "mistral"}
# Larger vocabularies may get a corrected regular expression from transformers.
MOST_PLAIN_TOKENS = 100_000


def read_json(directory, name):
    """An object, or None: there is no such file."""
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        return None
    if not os.path.isfile(path):
        raise OSError(f"{name} is not a regular file")
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is not valid JSON at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not text in UTF-8") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not isinstance(value, dict):
        raise TypeError(f"{name} must hold an object, not {type(value).__name__}")
    return value


def is_plain(directory):
    """Whether transformers would use tokenizer.json as it is."""
    tokenizer = read_json(directory, "tokenizer.json")
    if tokenizer is None or any(
        os.path.exists(os.path.join(directory, name)) for name in ("special_tokens_map.json", "added_tokens.json")
    ):
        return False
    model = read_json(directory, "config.json")
    config = read_json(directory, "tokenizer_config.json")
    if config is None:
        return model is None
    if model is not None and (model.get("model_type") not in PLAIN_MODELS or "tokenizer_class" in model):
        return False
    unnamed = "tokenizer_class" not in config and (model is None or model["model_type"] in CLASSLESS_MODELS)
    if not unnamed and config.get("tokenizer_class") not in PLAIN_CLASSES:
        return False
    if not HARMLESS.union(NAMED_TOKENS).issuperset(config):
        return False
    special = {token["content"] for token in tokenizer.get("added_tokens") or () if token.get("special")}
    named = [token["content"] if isinstance(token, dict) else token
             for token in map(config.get, NAMED_TOKENS) if token is not None]
    vocabulary = tokenizer.get("model", {}).get("vocab", ())
    return (
        tokenizer.get("padding") is None
        and special.issuperset(named)
        and len(vocabulary) < MOST_PLAIN_TOKENS
    )


def transformers_reading(directory):
    """What transformers makes of the files; runs in the process of its own."""
    import transformers

    # Objects without the name of their class, as special_tokens_map.json has them.
    config = read_json(directory, "tokenizer_config.json") or {}
    objects = {name: AddedToken(**config[name]) for name in NAMED_TOKENS
               if isinstance(config.get(name), dict) and "__type" not in config[name]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        directory, local_files_only=True, trust_remote_code=False, **objects)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise TypeError(f"{type(tokenizer).__name__} is not made by the package tokenizers; save a tokenizer.json")
    # Special in one file and not in another: left out of texts all the same, which the written form does not say.
    hidden = [token.content for token_id, token in backend.get_added_tokens_decoder().items()
              if not token.special and not backend.decode([token_id])]
    even_bpe = getattr(tokenizer, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", True)
    return {
        "tokenizer": backend.to_str(),
        "hidden": hidden,
        "cleans_up": bool(tokenizer.clean_up_tokenization_spaces),
        "even_bpe": bool(even_bpe),
        "split_special_tokens": bool(tokenizer.split_special_tokens),
        "special_tokens": tokenizer.special_tokens_map,
    }


def ask_transformers(directory, source):
    """transformers_reading() in a process of its own, which runs `source`, this file's text."""
    settings = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
                "PYTHONSAFEPATH": "1"}  # no modules of the working directory
    done = subprocess.run(
        [sys.executable, "-c", source, directory],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIME_LIMIT,
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    lines = done.stderr.strip().splitlines() or [f"exit {done.returncode} without a word"]
    raise RuntimeError(f"transformers does not read this tokenizer: {lines[-1][:500]}")


def clean_up(text):
    """transformers' clean_up_tokenization: no spaces before punctuation and in contractions."""
    for mark in (".", "?", "!", ","):
        text = text.replace(" " + mark, mark)
    text = text.replace(" ' ", "'")
    for end in ("n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(" " + end, end)
    return text


def plain_tokenizer(file):
    try:
        return Tokenizer.from_file(file)
    except Exception as error:  # the package's own, without the file's name
        raise ValueError(f"{os.path.basename(file)}: {error}") from None


class HfTokenizer:
    def __init__(self, directory, source):
        if is_plain(directory):
            config = read_json(directory, "tokenizer_config.json") or {}
            self.tokenizer = plain_tokenizer(os.path.join(directory, "tokenizer.json"))
            cleans_up, even_bpe = bool(config.get("clean_up_tokenization_spaces")), False
            self.special_tokens = None  # as the files say
        else:
            reading = ask_transformers(directory, source)
            self.tokenizer = Tokenizer.from_str(reading["tokenizer"])
            for token in self.tokenizer.get_added_tokens_decoder().values():
                if token.content in reading["hidden"]:
                    token.special = True
                    self.tokenizer.add_special_tokens([token])
            self.tokenizer.encode_special_tokens = reading["split_special_tokens"]
            cleans_up, even_bpe = reading["cleans_up"], reading["even_bpe"]
            self.special_tokens = reading["special_tokens"]
        # What somebody's last batch was cut and filled to is no property of a prompt.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.cleans_up = cleans_up and (even_bpe or type(self.tokenizer.model).__name__ != "BPE")
        self.prefix = self.special_prefix()

    def special_prefix(self):
        """What the post-processor puts before a text, such as the mark of its beginning."""
        with_special, plain = (self.tokenizer.encode("a", add_special_tokens=special).ids for special in (True, False))
        for begin in range(len(with_special) - len(plain) + 1 if plain else 0):
            if with_special[begin : begin + len(plain)] == plain:
                return with_special[:begin]
        return []

    def encode(self, text, add_special):
        ids = self.tokenizer.encode(text, add_special_tokens=add_special).ids
        length = len(self.prefix)
        # A text that begins with the mark of its beginning, as a rendered chat template does, has it already.
        twice = add_special and length > 0 and ids[: 2 * length] == self.prefix + self.prefix
        return ids[length:] if twice else ids

    def decode_batch(self, batch):
        texts = self.tokenizer.decode_batch(batch, skip_special_tokens=True)
        return [clean_up(text) for text in texts] if self.cleans_up else texts

    def missing_ids(self, count):
        """Those of the ids below `count` that are no token's."""
        known = set(self.tokenizer.get_vocab(with_added_tokens=True).values())
        return [token for token in range(count) if token not in known]


if __name__ == "__main__":
    sys.modules["torch"] = None  # looks absent: importing it takes seconds more
    json.dump(transformers_reading(sys.argv[1]), sys.stdout)
