"""Conversations become the tokens that transformers' apply_chat_template makes of them."""

import importlib.util
import json
import re
import shutil

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from program import ROOT, run, write_config

STORIES = ROOT / "assets/stories260K"

CHATML = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' + system_message }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
BRACKETS = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (system_message + '\\n\\n' if loop.first and system_message is defined else '') }}
        {{- message['content'] + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
"""
# Whitespace control, JSON that keeps order and characters, loop controls, tokens that are not set.
CORNERS = """
    {% for message in messages %}
        {% if message.role == 'system' %}
            {% continue %}
        {% endif %}
    {{ message | tojson }} {{ {'b': '<é>', 'a': [1, 2.5]} | tojson(indent=2) }}
        {% if loop.index > 2 %}{% break %}{% endif %}
    {% endfor %}
{{ tools is none }} {{ documents is none }} {{ pad_token is defined }} {{ unk_token }} {{ dict(a=1) }}
"""
# Contents that are lists, calls of tools and their answers, and what else a row may have for a template.
TOOLS = """
{%- if tools %}{{ '<tools>' + tools | tojson + '</tools>' }}{% endif %}
{%- if enable_thinking is defined %}{{ '<think>' if enable_thinking else '<no_think>' }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + (' ' + message.name if message.name else '') + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}{{ part.text }}{% endfor %}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}{{ call.function.name + (call.function.arguments | tojson) }}{% endfor %}
    {{- message.tool_call_id if message.role == 'tool' }}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' if add_generation_prompt }}
"""
TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "brackets": BRACKETS, "corners": CORNERS}
ADDED = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]

SYSTEM = {"role": "system", "content": "Be brief. "}
QUESTION = {"role": "user", "content": "What is 2+2? <b>\"é\"</b>\n</s>"}
CONVERSATIONS = {
    "user": [QUESTION],
    "system_user": [SYSTEM, QUESTION],
    "turns": [QUESTION, {"role": "assistant", "content": "4", "note": None}, {"content": "And 3+3?", "role": "user"}],
    "system_turns": [SYSTEM, QUESTION, {"role": "assistant", "content": "4"}, {"role": "user", "content": "3+3?"}],
}


def rendered(directory, messages):
    """What the program's own Python makes of them, and its tokens."""
    specification = importlib.util.spec_from_file_location("chat_template", ROOT / "src/nereus/runtime/bridge/chat_template.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    text = module.load(str(directory))(json.dumps(messages))
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return text, tokenizer.encode(text, add_special_tokens=False).ids


def expected(directory, messages, **arguments):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    arguments |= dict(add_generation_prompt=True, return_dict=False)
    text = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
    return text, tokenizer.apply_chat_template(messages, tokenize=True, **arguments)


def stories(directory, added=()):
    shutil.copytree(STORIES, directory)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.add_special_tokens(list(added))
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.mark.parametrize("in_config", [True, False], ids=["config", "file"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_are_those_of_transformers(tmp_path, name, in_config):
    directory = stories(tmp_path / "tokenizer", ADDED)
    if in_config:
        file = directory / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATES[name]}))
    else:
        (directory / "chat_template.jinja").write_text(TEMPLATES[name])
    for messages in CONVERSATIONS.values():
        assert rendered(directory, messages) == expected(directory, messages)


def test_special_tokens_are_those_of_transformers(tmp_path):
    template = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}|{{ cls_token is defined }}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": {"__type": "AddedToken", "content": "<s>"},
              "eos_token": "</s>", "unk_token": None}
    older = {"eos_token": {"content": "<unk>", "lstrip": False}, "pad_token": "<unk>"}
    for added in ({}, {"added_tokens_decoder": {"2": {"content": "</s>", "special": True}}}):
        directory = stories(tmp_path / f"tokenizer{len(added)}")
        (directory / "tokenizer_config.json").write_text(json.dumps(config | added))
        (directory / "special_tokens_map.json").write_text(json.dumps(older))
        (directory / "chat_template.jinja").write_text(template)
        assert rendered(directory, [QUESTION]) == expected(directory, [QUESTION])


CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 0.1}}}]}
ANSWER = {"role": "tool", "tool_call_id": "1", "name": "add", "content": "4"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " 2+2?"}]}
WITH_TOOLS = {
    "calls": [QUESTION, CALL, ANSWER],
    "content_left_out": [QUESTION, {key: value for key, value in CALL.items() if key != "content"}, ANSWER],
    "parts": [SYSTEM, PARTS, {"role": "assistant", "content": "4"}, QUESTION],
    "developer": [{"role": "developer", "content": "Be brief."}, QUESTION],
    "assistant_last": [QUESTION, {"role": "assistant", "content": "It is"}],
}


@pytest.mark.parametrize("more", [{}, {"tools": [{"type": "function", "function": {"name": "add", "b": 1, "a": 2}}]},
                                  {"chat_template_kwargs": {"enable_thinking": False}}], ids=["", "tools", "names"])
@pytest.mark.parametrize("name", WITH_TOOLS)
def test_members_of_the_chat_apis_are_those_of_transformers(tmp_path, name, more):
    directory = stories(tmp_path / "tokenizer", ADDED)
    (directory / "chat_template.jinja").write_text(TOOLS)
    messages = WITH_TOOLS[name]
    arguments = {"tools": more.get("tools"), **more.get("chat_template_kwargs", {})}
    given = {"messages": messages, **more} if more else messages
    assert rendered(directory, given) == expected(directory, messages, **arguments)


@pytest.mark.parametrize("name", ["chatml", "headers", "brackets"])
def test_a_template_without_lists_gets_texts(tmp_path, name):
    directory = stories(tmp_path / "tokenizer", ADDED)
    (directory / "chat_template.jinja").write_text(TEMPLATES[name])
    text = {"role": "user", "content": "What is\n 2+2?"}
    assert rendered(directory, [PARTS]) == expected(directory, [text])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_program_takes_conversations(tmp_path, name):
    model = stories(tmp_path / "model")
    (model / "chat_template.jinja").write_text(BRACKETS)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": CONVERSATIONS[name]}) + "\n")
    done = run("check", write_config(tmp_path), f"data.train_files={prompts}", f"data.tokenizer={model}",
               "data.max_prompt_length=200")
    assert done.returncode == 0, done.stderr
    tokens = expected(model, CONVERSATIONS[name])[1]
    assert re.search(r"longest (\d+) tokens", done.stdout)[1] == str(len(tokens))
