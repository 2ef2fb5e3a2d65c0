"""Names as people write them: aliases resolved, two fits refused, near misses suggested."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from twofold.core import UnknownNameError

# Words in front of and behind a name that do not tell parts or shapes apart.
MAKERS = ("nvidia", "amd", "intel", "google", "aws", "tesla", "instinct")
VARIANTS = ("instruct", "chat", "it", "base", "hf")
SHOWN_LIMIT = 8


def canonical(name: str) -> str:
    """The name without case, spaces, underscores and dashes.

    >>> canonical("H100-SXM 80GB") == canonical("h100_sxm_80gb")
    True
    """
    return name.lower().replace(" ", "").replace("_", "").replace("-", "")


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
    """The catalogue's own name for `name`.

    `names` maps the `form` of every row's name to the name, `aliases` that of every alias to what it fits.
    A name is tried as it is, then without its organisation or maker, then without a variant's ending.
    """
    for spelling in _spellings(form(name)):
        if spelling in names:
            return names[spelling]
        fits = aliases.get(spelling, ())
        if len(fits) == 1 and form(fits[0]) in names:
            return names[form(fits[0])]
        if len(fits) > 1:
            raise UnknownNameError(
                f"{kind} `{name}` fits {len(fits)} rows: {', '.join(fits)}",
                hint=f"write one of them, such as `{fits[0]}`",
            )
    meant = {alias: fits[0] for alias, fits in aliases.items()} | dict(names)
    hint = f"{_nearest(form(name), meant)} `twofold catalog {table}` lists them".strip()
    raise UnknownNameError(f"unknown {kind} `{name}`", hint=hint)


def _spellings(name: str) -> list[str]:
    """From the name itself to ever shorter forms of it."""
    spellings = [name]
    if "/" in name:
        spellings.append(name.rsplit("/", 1)[1])
    bare = name
    for maker in MAKERS:
        bare = bare.removeprefix(maker)
        spellings.append(bare)
    for spelling in list(spellings):
        for variant in VARIANTS:
            if spelling.endswith(variant) and len(spelling) > len(variant) + 3:
                spellings.append(spelling.removesuffix(variant))
    return list(dict.fromkeys(spellings))


def _nearest(name: str, known: Mapping[str, str]) -> str:
    """`did you mean …?` with what the nearest forms stand for, each once; empty where none is near."""
    near = list(dict.fromkeys(known[form] for form in get_close_matches(name, known, n=3, cutoff=0.6)))
    return f"did you mean {' or '.join(f'`{other}`' for other in near)}?" if near else ""
