"""Commands that a screen proposes, as they are pasted: each runs, and exits with 0, or 3 where it misses."""

import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from twofold.cli.running import twofold
from twofold.core.errors import InfeasibleError

EXAMPLES = Path(__file__).parents[2] / "examples"
ANSWERED = {0, InfeasibleError.exit_code}
QUICK = {"finetune", "laptop", "recommender"}  # whose commands run; those of the others are read


def field_of(screen: str, label: str) -> list[str]:
    """The pieces of a field, between which its lines break."""
    lines = screen.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(label))
    found = [lines[first].removeprefix(label), *takewhile(lambda line: line[:1] == " ", lines[first + 1 :])]
    return [piece for line in found for piece in line.strip().split(" · ")]


def proposed(screen: str) -> Iterator[str]:
    """Every command of NEXT; a flag alone follows the last `twofold plan SPEC`."""
    stem = ""
    for piece in field_of(screen, "NEXT"):
        if piece.startswith("twofold "):
            stem = piece.partition(" --")[0]
            yield piece
        else:
            assert piece.startswith("--") and stem
            yield f"{stem} {piece}"


@pytest.mark.parametrize("name", sorted(each.name for each in EXAMPLES.iterdir()))
def test_every_command_that_a_plan_proposes_can_be_pasted(name: str, run) -> None:
    full = run(f"twofold plan {EXAMPLES / name} --full")
    follow = field_of(full.out, "EXPLAIN")
    assert [each.split()[1] for each in follow] == ["plan", "explain", "compare"]
    commands = [*proposed(full.out), *follow]
    assert full.code == 0 and len(set(commands)) == len(commands) > len(follow) + 1
    for command in commands:
        if name in QUICK:
            assert run(command).code in ANSWERED, command
        else:
            verb, *words = shlex.split(command)[1:]
            parsed = twofold.get_command(click.Context(twofold), verb)
            assert parsed and parsed.make_context(verb, words), command
