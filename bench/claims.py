"""Runs the command of every claim, and says which one fails or shows another figure than its verdict.

    python bench/claims.py [S0-22,…]

Takes minutes: every command starts from nothing, as a user's does.
"""

import json
import shlex
import sys
import time

from click.testing import CliRunner

from twofold.catalog.catalog import load_catalog
from twofold.cli.running import twofold
from twofold.perf.constants import load_constants
from twofold.verdicts.table import load_claims
from twofold.verdicts.units import SI_FACTOR
from twofold.verdicts.verdicts import Judged, Verdict, judge
from twofold.verdicts.world import World


def told_value(judged: Judged) -> object:
    """What the command is about, in SI units: the first case that decided."""
    decided = judged.verdict == Verdict.HOLDS
    case = next(case for case in judged.cases if case.holds == decided)
    number = isinstance(case.value, (int, float)) and not isinstance(case.value, bool)
    return case.value * SI_FACTOR.get(case.unit, 1.0) if number else case.value  # type: ignore[operator]


def failure(judged: Judged) -> str:
    """Why the command does not reproduce its claim's figure; "" when it does."""
    words = shlex.split(judged.command)[1:]
    computes = "--compute" in words
    done = CliRunner().invoke(twofold, [*words, "--json"] if computes else words)
    if done.exit_code != 0:
        return f"exit {done.exit_code}: {done.exception or done.output[:200]}"
    if not done.output.strip():
        return "prints nothing"
    if not computes:
        return ""
    value, wanted = json.loads(done.output)["value"], told_value(judged)
    if isinstance(wanted, float) and isinstance(value, (int, float)):
        return "" if abs(value - wanted) <= 1e-9 * max(abs(wanted), 1e-30) else f"{value} is not {wanted}"
    return "" if value == wanted else f"{value!r} is not {wanted!r}"


def main() -> int:
    """Print what fails, and how many ran."""
    only = set(sys.argv[1].split(",")) if len(sys.argv) > 1 else set()
    world, failed, began_s = World(load_catalog(), load_constants()), 0, time.monotonic()
    claims = [claim for claim in load_claims() if not only or claim.id in only]
    for claim in claims:
        judged = judge(claim, world)
        why = failure(judged) if judged.cases else ""
        failed += bool(why)
        if why:
            print(f"{claim.id}  {judged.command}\n        {why}", flush=True)
    print(f"{len(claims)} commands, {failed} fail, {time.monotonic() - began_s:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
