"""Variants of a scenario: the same file with a few keys other, each where it was written.

They are merged as nodes, before anything is read, so that an error in a variant names its own line.
"""

from twofold.contracts import did_you_mean
from twofold.contracts.spec import Mapping, Node, Scalar
from twofold.core import Place, ShapeError, UnknownNameError

VARIANTS = "variants"
OVERRIDE = "--sweep"  # what errors call the place of a value that the command line gave


def split_variants(root: Mapping) -> tuple[Mapping, dict[str, Mapping]]:
    """The scenario without its variants, and what each of them changes."""
    held = root.entries.get(VARIANTS)
    base = Mapping(root.place, dict(root.entries), dict(root.keys))
    if held is None:
        return base, {}
    del base.entries[VARIANTS], base.keys[VARIANTS]
    if not isinstance(held, Mapping):
        hint = "write a name for each, and below it the keys that are other"
        raise ShapeError(f"`{VARIANTS}` needs keys", place=root.keys[VARIANTS], hint=hint)
    changes: dict[str, Mapping] = {}
    for name, change in held.entries.items():
        if not isinstance(change, Mapping):
            raise ShapeError(f"the variant `{name}` needs keys", place=held.keys[name], hint="what is other?")
        changes[name] = change
    return base, changes


def merged(base: Mapping, change: Mapping) -> Mapping:
    """Both, the change's where both speak: mappings are merged key by key, lists and texts replaced."""
    entries, keys = dict(base.entries), dict(base.keys)
    for key, value in change.entries.items():
        under = entries.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        entries[key] = merged(under, value) if both else value  # type: ignore[arg-type]  # both are mappings
        keys[key] = change.keys[key]
    return Mapping(base.place, entries, keys)


def chosen(root: Mapping, variant: str, scenario: str) -> Mapping:
    """The scenario, or the variant of it. Raises UnknownNameError where it has no such variant."""
    base, changes = split_variants(root)
    if not variant:
        return base
    if variant not in changes:
        known = ", ".join(changes) or "it has none"
        raise UnknownNameError(
            f"`{variant[:64]}` is not a variant of `{scenario}`",
            hint=did_you_mean(variant, changes, f"variants: {known}"),
        )
    return merged(base, changes[variant])


def override(path: str, value: str) -> Mapping:
    """`a.b` and a text as nodes: {a: {b: text}}."""
    node: Node = Scalar(value, Place(OVERRIDE, 1, 1))
    for key in reversed(path.split(".")):
        node = Mapping(Place(OVERRIDE, 1, 1), {key: node}, {key: Place(OVERRIDE, 1, 1)})
    assert isinstance(node, Mapping)
    return node
