"""A tokenizer's chat template, rendered as transformers does it.

Compiled into the program, where it runs in worker processes with limits of time and memory, which the sandbox has not
(chat_renderer.cpp); jinja2 alone, because importing transformers takes seconds.
"""

import datetime
import json
import os

import jinja2
import jinja2.ext
import jinja2.sandbox

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks the assistant's words; here it is only a scope."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class Namespace(jinja2.utils.Namespace):
    """Templates are code of strangers: an attribute with an underscore could lead out of the sandbox."""

    def __init__(*arguments, **attributes):
        self, *arguments = arguments  # so that a template may have an attribute "self"
        attributes = dict(*arguments, **attributes)
        for name in attributes:
            Namespace.refuse_internal(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.refuse_internal(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def refuse_internal(name):
        if str(name).startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace takes no attribute {name!r}")


def make_dict(*arguments, **items):
    """The sandbox guards objects it is given, not the methods of the class dict."""
    return dict(*arguments, **items)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    """Some templates (Llama 3) write today's date, so that prompts differ from day to day, as with transformers."""
    return datetime.datetime.now().strftime(form)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals.update(
        dict=make_dict, namespace=Namespace, raise_exception=raise_exception, strftime_now=strftime_now
    )
    return made


def read(directory, name):
    """The text of a file, or None."""
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


def templates_of(directory, config):
    """The templates' texts by name. A file of its own comes first and is the only one."""
    text = read(directory, "chat_template.jinja")
    if text is not None:
        return {"default": text}
    template = config.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}
    if template is not None and not isinstance(template, str):
        raise TypeError(f"chat_template of tokenizer_config.json must be a text, not {template!r:.80}")
    return {} if template is None else {"default": template}


def special_tokens(directory, config):
    """What templates know under names such as bos_token. The older file special_tokens_map.json comes first, but
    not for a config that has its added tokens itself."""
    known = dict(config)
    if "added_tokens_decoder" not in config:
        known.update(json.loads(read(directory, "special_tokens_map.json") or "{}"))
    tokens = {name: known.get(name) for name in SPECIAL_TOKENS}
    texts = {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}
    return {name: text for name, text in texts.items() if text is not None}


def load(directory, tokens=None):
    """A function from messages (a list as JSON) to the prompt's text, or None: there is no template. `tokens`: what
    templates know under names such as bos_token; None: as the files say."""
    config = json.loads(read(directory, "tokenizer_config.json") or "{}")
    templates = templates_of(directory, config)
    if "default" not in templates:
        return None
    wanted = [name for name in ("default", "tool_use") if name in templates]
    compiled = {name: environment().from_string(templates[name]) for name in wanted}
    if tokens is None:
        tokens = special_tokens(directory, config)

    def render(given):
        given = json.loads(given)
        if isinstance(given, list):
            given = {"messages": given}
        tools = given.get("tools")
        template = compiled["default"] if tools is None else compiled.get("tool_use", compiled["default"])
        names = dict(tools=tools, documents=None, add_generation_prompt=True) | tokens
        names |= given.get("chat_template_kwargs") or {}
        messages = [
            {key: value for key, value in message.items() if value is not None} for message in given["messages"]
        ]
        return render_parts(lambda messages: template.render(names | {"messages": messages}), messages)

    return render


def render_parts(render, messages):
    """Contents may be lists of parts. Templates that know none write Python's form of the list or fail; they get the
    texts in it, one a line."""
    lists = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    if not lists:
        return render(messages)
    try:
        text = render(messages)
        if not any(str(content) in text for content in lists):
            return text
    except (TypeError, AttributeError, jinja2.exceptions.UndefinedError):
        pass
    return render([
        message | {"content": "\n".join(part["text"] for part in message["content"])}
        if isinstance(message.get("content"), list) else message for message in messages
    ])


def open_task(directory, tokens):
    """For the worker: from a list of conversations (each a list as JSON) to the list of their texts, or to None."""
    render = load(directory, tokens)
    return lambda conversations: render and [render(messages) for messages in json.loads(conversations)]
