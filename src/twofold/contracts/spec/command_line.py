"""Reads the line that starts a serving engine: pasted, or in a script that keeps its options in an array.

Options come back by vLLM's long names, whatever the engine calls them.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from twofold.core import errors
from twofold.core.errors import Place

# How each engine's command begins.
PROGRAMS = {
    "vllm": r"vllm\s+serve|vllm\.entrypoints\.\S+",
    "sglang": r"sglang\.launch_server|sglang\s+serve",
    "tensorrt-llm": r"trtllm-serve(?:\s+serve)?",
    "llama.cpp": r"llama-server",
    "transformers": r"transformers\s+serve",
}
COMMAND = re.compile(rf"(?:^|[\s/])({'|'.join(PROGRAMS.values())})(?=\s|$)")
# What the others call vLLM's options.
_SIZES = {
    "tp-size": "tensor-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp-size": "data-parallel-size",
}
_SHORT: Mapping[str, Mapping[str, str]] = {
    "vllm": {"tp": _SIZES["tp-size"], "pp": _SIZES["pp-size"], "dp": _SIZES["dp-size"]},
    "sglang": {
        **_SIZES,
        "tp": _SIZES["tp-size"],
        "model-path": "model",
        "max-running-requests": "max-num-seqs",
        "context-length": "max-model-len",
    },
    "tensorrt-llm": {**_SIZES, "max-batch-size": "max-num-seqs", "max-seq-len": "max-model-len"},
    "llama.cpp": {
        **dict.fromkeys(("m", "hf", "hf-repo"), "model"),
        "alias": "served-model-name",
        **dict.fromkeys(("np", "parallel"), "max-num-seqs"),
        **dict.fromkeys(("c", "ctx-size"), "context"),
        "cache-type-k": "kv-cache-dtype",
    },
    "transformers": {"force-model": "model"},
}
_FLAGS = {
    *(
        "enable-prefix-caching",
        "no-enable-prefix-caching",
        "enable-chunked-prefill",
        "enable-expert-parallel",
    ),
    *(
        "trust-remote-code",
        "enforce-eager",
        "continuous-batching",
        "disable-radix-cache",
        "enable-dp-attention",
    ),
}
_ARRAY = re.compile(r"^[ \t]*(\w+)=\(([^\n]*|.*?\n[ \t]*)\)[ \t]*(?:#.*)?$", re.M | re.S)
_SET = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(\S.*)$", re.M)
_USED = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*)|:\?[^}]*)?\}|([A-Za-z_]\w*))")
EXPANSIONS_MOST = 8  # a variable of a variable of …
SCRIPT_MOST = 100_000  # characters; a script that starts an engine is shorter


@dataclass(frozen=True, slots=True)
class EngineLine:
    """An engine, what it was told, and the machine that the head of a rendered script names."""

    engine: str
    options: Mapping[str, str]
    machine: str  # `4xH200`, or ""


def read_command(text: str, place: Place | None) -> EngineLine:
    """The first line that starts an engine. Raises InferenceSourceError for one without a model."""
    text = text[:SCRIPT_MOST]
    arrays, told = _variables(text, place)
    bare = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M).replace("\\\r\n", " ").replace("\\\n", " ")
    found = COMMAND.search(bare)
    if found is None:  # only in what is said about it
        raise errors.InferenceSourceError("no line starts an engine", place=place)
    engine = next(name for name, begins in PROGRAMS.items() if re.fullmatch(begins, found[1]))
    words = []
    for word in _split(bare[found.end() :], place):
        array = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word)
        words += arrays.get(array[1], []) if array else [_expanded(word, told)]
    return EngineLine(engine, _options(engine, words, place), _machine(text))


@dataclass(frozen=True, slots=True)
class Words:
    """What stands behind a command: options by their names with `-` for `_`, flags empty; and other words."""

    options: Mapping[str, str]
    others: tuple[str, ...]


def script_words(text: str, command: re.Pattern[str], place: Place | None) -> Words:
    """Options and words of the first line that starts so. A word behind an option is among the others too."""
    text = text[:SCRIPT_MOST]
    arrays, told = _variables(text, place)
    bare = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M).replace("\\\r\n", " ").replace("\\\n", " ")
    found = command.search(bare)
    if found is None:  # only in what is said about it
        raise errors.InferenceSourceError("no line starts training software", place=place)
    options, others, last = dict[str, str](), list[str](), ""
    for word in _split(bare[found.end() :].partition("\n")[0], place):
        array = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word)
        for each in arrays.get(array[1], []) if array else [_expanded(word, told)]:
            key, equals, value = each.partition("=")
            if each.startswith("-"):
                last = "" if equals else key.lstrip("-").replace("_", "-")
                options[key.lstrip("-").replace("_", "-")] = value
            else:
                others.append(each)
                if last and not options[last]:
                    options[last] = each
                last = ""
    return Words(options, tuple(others))


def _variables(text: str, place: Place | None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Arrays and variables that a script sets before it starts anything."""
    told = {}
    for name, value in _SET.findall(_ARRAY.sub("", text)):
        words = _split(value, None) if value.count('"') % 2 == 0 and value.count("'") % 2 == 0 else []
        told[name] = words[0] if words else ""
    arrays = {
        name: [_expanded(word, told) for word in _split(body, place)] for name, body in _ARRAY.findall(text)
    }
    return arrays, told


def _split(text: str, place: Place | None) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise errors.InferenceSourceError(f"the command ends in the middle: {error}", place=place) from error


def _expanded(word: str, told: Mapping[str, str]) -> str:
    """The word with its variables; one that is set nowhere stays, so that its name can be read."""
    for _ in range(EXPANSIONS_MOST):
        after = _USED.sub(lambda use: _value(use, told), word)
        if after == word or len(after) > SCRIPT_MOST:
            break
        word = after
    return word


def _value(use: "re.Match[str]", told: Mapping[str, str]) -> str:
    name = use[1] or use[3]
    value = told.get(name, "")
    if value and f"${{{name}:" not in value:
        return value
    own = _USED.fullmatch(value)  # NAME="${NAME:-otherwise}"
    return use[2] or (own[2] if own and own[2] else "") or f"${name}"


def _options(engine: str, words: list[str], place: Place | None) -> dict[str, str]:
    """Options by their long names; the model too, wherever it stands."""
    names, options = _SHORT[engine], dict[str, str]()
    words = [word for word in words if word != "$@"]
    while words:
        word = words.pop(0)
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            key = key.lstrip("-").replace("_", "-")
            takes_value = not equals and key not in _FLAGS and words and not words[0].startswith("--")
            options[names.get(key, key)] = words.pop(0) if takes_value else value
        else:
            options.setdefault("model", word)
    if not options.get("model"):
        hint = "vllm serve MODEL --tensor-parallel-size 4"
        raise errors.InferenceSourceError("the command names no model", place=place, hint=hint)
    return options


def _machine(text: str) -> str:
    """What the head of a script that `render` wrote says of one replica."""
    said = re.search(r"^# .*: one of \d+ replicas?, on (\d{1,4}) × (\S+)$", text, re.M)
    return f"{said[1]}x{said[2]}" if said else ""
