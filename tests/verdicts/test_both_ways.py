"""No predicate is true, or false, by construction: as what it asks varies, it comes out both ways."""

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from twofold.verdicts.language import evaluate
from twofold.verdicts.quantities import QUANTITIES
from twofold.verdicts.table import Claim, Predicate, load_claims
from twofold.verdicts.units import thresholds

TRIES = 3000
JUDGED = [(claim, each) for claim in load_claims() for each in claim.predicates]


def pools(claim: Claim, predicate: Predicate) -> dict[type, list[Any]]:
    """What invented quantities may come to: around the claim's numbers, and the texts that it names."""
    written = [node.value for node in ast.walk(predicate.tree) if isinstance(node, ast.Constant)]
    ends = [end for end in (claim.low, claim.high) if end]
    numbers = [1.0, *ends, *thresholds().values()]
    scaled = [number * factor for number in numbers for factor in (1 / 8, 0.4, 0.5, 1.0, 1.05, 2.0, 2.5, 8.0)]
    texts = [text for text in written if isinstance(text, str)]
    return {float: [0.0, 1e-12, 1e9, 1e15, *scaled], str: [*texts, "another", "a third"], bool: [True, False]}


@dataclass(slots=True)
class Invented:
    """Answers quantities at random, the same question the same way within one try."""

    pool: Mapping[type, list[Any]]
    dice: random.Random
    told: dict[Any, Any] = field(default_factory=dict)

    def __call__(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        kind = get_type_hints(QUANTITIES[name].function)["return"]
        return self.of(kind, (name, *arguments, *sorted(named.items())))

    def of(self, kind: Any, key: Any) -> Any:
        """A value of a kind; of a whole row one whose every figure is invented."""
        kinds = [each for each in get_args(kind) or (kind,) if each is not type(None)]
        if is_dataclass(kinds[0]):
            return row_of(kinds[0], self, key)
        plain = next((each for each in (bool, str) if each in kinds), float)
        if key not in self.told:
            self.told[key] = self.dice.choice(self.pool[plain])
        return self.told[key]


def row_of(kind: Any, invented: Invented, key: Any) -> Any:
    """Something that looks like a row to the language, with figures of the kinds that the row has."""
    hints = {name: hint for base in reversed(kind.__mro__) for name, hint in get_type_hints(base).items()}
    for name, held in vars(kind).items():
        if isinstance(held, property):
            hints[name] = get_type_hints(held.fget)["return"]

    @dataclass
    class Row:
        def __getattr__(self, name: str) -> Any:
            return invented.of(hints[name], (*key, name))

    return Row()


@pytest.mark.parametrize(
    ("claim", "predicate"), JUDGED, ids=[f"{claim.id}-{each.label}" for claim, each in JUDGED]
)
def test_a_predicate_comes_out_both_ways(claim: Claim, predicate: Predicate) -> None:
    dice, pool, seen = random.Random(18), pools(claim, predicate), set()
    cases = list(claim.cases) or [{}]
    for _ in range(TRIES):
        case = {**dice.choice(cases), "low": claim.low, "high": claim.high}
        seen.add(bool(evaluate(predicate.tree, case, Invented(pool, dice))))
        if len(seen) == 2:
            return
    pytest.fail(f"always {seen}: {predicate.text}")
