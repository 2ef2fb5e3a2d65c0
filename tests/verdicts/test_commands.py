"""The command of a verdict runs and shows the figure it is about."""

import json
import shlex

import pytest
from click.testing import CliRunner

from twofold.catalog import load_catalog
from twofold.cli.running import twofold
from twofold.perf import load_constants
from twofold.verdicts import Judged, Verdict, World, load_claims
from twofold.verdicts.commands import quoted
from twofold.verdicts.verdicts import judge

CLAIMS = {claim.id: claim for claim in load_claims()}


@pytest.fixture(scope="module")
def world() -> World:
    return World(load_catalog(), load_constants())


def run(command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "twofold"
    done = CliRunner().invoke(twofold, words, catch_exceptions=False)
    assert done.exit_code == 0, f"{command}\n{done.output}"
    return done.output


def telling(judged: Judged) -> float:
    """The value, in SI units, of the case that the command is about."""
    wanted = judged.verdict == Verdict.HOLDS
    return next(float(str(case.value)) for case in judged.cases if case.holds == wanted)


@pytest.mark.parametrize(
    ("identity", "shown"), [("S0-22", "72"), ("S0-21", "700"), ("S0-28", "14,300"), ("S2-13", "141")]
)
def test_a_figure_of_the_catalogue_is_shown_by_the_catalogue(identity: str, shown: str, world: World) -> None:
    judged = judge(CLAIMS[identity], world)
    assert judged.command.startswith("twofold catalog ")
    assert shown in run(judged.command)


def test_a_step_is_shown_by_estimate_with_the_same_share(world: World) -> None:
    judged = judge(CLAIMS["S4-16"], world)
    assert judged.command.startswith("twofold estimate train ")
    answer = json.loads(run(judged.command + " --json"))
    assert 100 * answer["communication_exposed_fraction"] == pytest.approx(telling(judged), rel=1e-6)


def test_a_load_is_shown_by_estimate_with_the_same_time(world: World) -> None:
    judged = judge(CLAIMS["S0-08"], world)
    assert judged.command.startswith("twofold estimate serve ")
    answer = json.loads(run(judged.command + " --json"))
    assert 1e3 * answer["percentiles"]["tpot_p50"]["value"] == pytest.approx(telling(judged), rel=0.02)


@pytest.mark.parametrize("identity", ["S0-36", "S1-10", "S3-10", "S0-63", "S2-05"])
def test_any_other_figure_is_computed_by_its_expression(identity: str, world: World) -> None:
    judged = judge(CLAIMS[identity], world)
    assert judged.command.startswith("twofold claims --compute ")
    assert run(judged.command).strip()


def test_a_shell_reads_a_quoted_expression_back() -> None:
    for text in ("catalog('L4').tdp_w", 'a "b" c', "it's $5 `x`"):
        assert shlex.split(quoted(text)) == [text]
