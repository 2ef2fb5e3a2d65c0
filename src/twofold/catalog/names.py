"""Names as people write them: aliases resolved, two fits refused, near misses suggested."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from twofold.core.errors import UnknownNameError

# Words in front of and behind a name that do not tell parts or shapes apart.
MAKERS = ("nvidia", "amd", "intel", "google", "aws", "tesla", "instinct")
VARIANTS = ("instruct", "chat", "it", "base", "hf")
# How names of repositories end that hold a model's weights in another format, canonical, and that format.
CHECKPOINTS = {
    "fp8dynamic": "fp8",
    "fp8block": "fp8",
    "fp8kv": "fp8",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "fp4": "nvfp4",
    "gptqint8": "int8",
    "awqint4": "int4",
    "gptqint4": "int4",
    "awq": "int4",
    "gptq": "int4",
    "quantized.w4a16": "int4",
    "quantized.w8a8": "int8",
    "w4a16": "int4",
    "w8a8": "int8",
    "int4": "int4",
    "int8": "int8",
    "bnb4bit": "int4",
    "4bit": "int4",
    "8bit": "int8",
    "bf16": "bf16",
}


def canonical(name: str) -> str:
    """The name without case, spaces, underscores and dashes.

    >>> canonical("H100-SXM 80GB") == canonical("h100_sxm_80gb")
    True
    """
    return name.lower().replace(" ", "").replace("_", "").replace("-", "")


class Checkpoint(NamedTuple):
    """What the name of a published model tells beside the model."""

    base: str  # the canonical name without organisation, format and variant
    weights_format: str  # "" where the name tells none
    kv_format: str  # of the cache that it brings scales for, beside narrow weights; "" where it brings none


def checkpoint(name: str) -> Checkpoint:
    """Read a name such as a repository's.

    NVIDIA's tools calibrate an 8-bit cache together with the weights; elsewhere `-KV` says it.

    >>> checkpoint("Qwen/Qwen3-32B-AWQ")
    Checkpoint(base='qwen332b', weights_format='int4', kv_format='')
    >>> checkpoint("nvidia/DeepSeek-R1-NVFP4")[1:], checkpoint("amd/Llama-3.3-70B-Instruct-FP8-KV")[1:]
    (('nvfp4', 'fp8'), ('fp8', 'fp8'))
    """
    form = canonical(name)
    ending = next((each for each in CHECKPOINTS if form.endswith(each)), "")
    brings = form.startswith("nvidia/") or ending == "fp8kv"
    base = form.removesuffix(ending).rsplit("/", 1)[-1]
    variant = next((each for each in VARIANTS if base.endswith(each)), "")
    return Checkpoint(base.removesuffix(variant), CHECKPOINTS.get(ending, ""), "fp8" if brings else "")


def did_you_mean(name: str, known: Iterable[str], instead: str = "") -> str:
    """A hint with the nearest known names, or `instead`."""
    return _nearest(canonical(name), {canonical(other): other for other in known}) or instead


def resolve(
    name: str,
    kind: str,
    names: Mapping[str, str],
    aliases: Mapping[str, Sequence[str]],
    table: str,
    form: Callable[[str], str] = canonical,
) -> str:
    """The catalogue's own name for `name`. Raises UnknownNameError where none fits, or several do."""
    fits = fitting(name, names, aliases, form)
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UnknownNameError(
            f"{kind} `{name}` fits {len(fits)} rows: {', '.join(fits)}",
            hint=f"write one of them, such as `{fits[0]}`",
        )
    meant = {alias: fits[0] for alias, fits in aliases.items()} | dict(names)
    hint = f"{_nearest(form(name), meant)} `twofold catalog {table}` lists them".strip()
    raise UnknownNameError(f"unknown {kind} `{name}`", hint=hint)


def fitting(
    name: str,
    names: Mapping[str, str],
    aliases: Mapping[str, Sequence[str]],
    form: Callable[[str], str] = canonical,
) -> Sequence[str]:
    """The catalogue's own names that `name` fits: one, or several where it says too little.

    `names` maps the `form` of every row's name to the name, `aliases` that of every alias to what it fits.
    A name is tried as it is, then without its organisation or maker, then without the ending of a
    checkpoint in another format or of a variant.
    """
    for spelling in _spellings(form(name)):
        if spelling in names:
            return (names[spelling],)
        fits = aliases.get(spelling, ())
        if len(fits) == 1 and form(fits[0]) in names:
            return (names[form(fits[0])],)
        if len(fits) > 1:
            return fits
    return ()


@lru_cache(maxsize=4096)
def _spellings(name: str) -> tuple[str, ...]:
    """From the name itself to ever shorter forms of it."""
    spellings, bare = [name, name.rsplit("/", 1)[-1]], name
    for maker in MAKERS:
        bare = bare.removeprefix(maker)
        spellings.append(bare)
    for endings in (CHECKPOINTS, VARIANTS):
        for spelling in list(spellings):
            for ending in endings:
                if spelling.endswith(ending) and len(spelling) > len(ending) + 3:
                    spellings.append(spelling.removesuffix(ending))
    return tuple(dict.fromkeys(spellings))


def _nearest(name: str, known: Mapping[str, str]) -> str:
    """`did you mean …?` with what the nearest forms stand for, each once; empty where none is near."""
    near = list(dict.fromkeys(known[form] for form in get_close_matches(name, known, n=3, cutoff=0.6)))
    return f"did you mean {' or '.join(f'`{other}`' for other in near)}?" if near else ""
