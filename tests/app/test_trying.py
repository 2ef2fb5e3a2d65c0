"""Releases that a pipeline is tried with: each knows how it is to end, and another end is no success."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.app.test_loop_page import PAGE, RUN
from tests.app.test_releasing import beside, requested  # noqa: F401  (a fixture)
from tests.live.test_registry import FOUND
from twofold.app import looping, releasing, trying
from twofold.app.loop_page import LoopShown
from twofold.app.trying import OPEN, PROMOTED, REFUSED, ROLLED_BACK, VARIANTS, try_variants
from twofold.cli import main
from twofold.contracts.results import loop
from twofold.live.registry.registry import Registry
from twofold.pages.loop_page import run_page
from twofold.policy.gate.settings import GateSettings

GATE: Any = SimpleNamespace(built=SimpleNamespace(settings=GateSettings()))
AS_WANTED = (PROMOTED, ROLLED_BACK)
OTHERWISE = [(REFUSED, ROLLED_BACK), (PROMOTED, PROMOTED), (ROLLED_BACK, OPEN), (OPEN, PROMOTED)]


def ended(kind: str, outcome: str) -> loop.ReleaseTried:
    return loop.ReleaseTried("tiny:2", kind, outcome, "as the gate says", 9.0, 40, 8, 0.2)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoopShown]:
    """The page of a loop whose trials ended so."""

    def made(*outcomes: str) -> LoopShown:
        left = list(outcomes)
        monkeypatch.setattr(trying, "try_variant", lambda *at: ended(at[-1].kind, left.pop(0)))
        releases = try_variants(requested_nothing(), GATE)
        return LoopShown(replace(PAGE, releases=releases))

    return made


def requested_nothing() -> Any:
    """Nobody asks it for anything."""
    return None


def test_the_good_one_is_to_pass_and_the_slow_one_to_go_back(page: Callable[..., LoopShown]) -> None:
    assert tuple(each.wanted for each in VARIANTS) == AS_WANTED
    shown = page(*AS_WANTED)
    assert shown.exit_code == 0 and "MISSED" not in str(shown)
    assert "Not all as planned" not in run_page(replace(shown.data, rows=())).markdown


@pytest.mark.parametrize("outcomes", OTHERWISE)
def test_another_outcome_exits_with_3_and_the_page_says_which(
    outcomes: tuple[str, str], page: Callable[..., LoopShown]
) -> None:
    shown = page(*outcomes)
    assert shown.exit_code == 3
    assert max(map(len, shown.lines)) <= 100
    text, on_page = " ".join(str(shown).split()), run_page(replace(shown.data, rows=())).markdown
    assert "Not all as planned" in on_page
    for variant, outcome in zip(VARIANTS, outcomes, strict=True):
        said = f"✗ tiny:2, {variant.kind}: {outcome}, and was to be {variant.wanted}"
        assert (said in text) == (outcome != variant.wanted) == (said in on_page)
    kept = json.loads(shown.json)["releases"]
    assert [(each["outcome"], each["wanted"]) for each in kept] == list(zip(outcomes, AS_WANTED, strict=True))


def test_other_losses_after_the_kill_exit_with_3_and_older_pages_with_0(
    page: Callable[..., LoopShown],
) -> None:
    assert RUN.recovery is not None
    other = replace(RUN, recovery=replace(RUN.recovery, equal_losses=False))
    shown = LoopShown(replace(page(*AS_WANTED).data, training=(other,)))
    assert shown.exit_code == 3
    assert "MISSED       ✗ losses of repeated steps are other ones after rank 1 was killed" in str(shown)
    assert LoopShown(replace(PAGE, releases=(ended("as trained", ROLLED_BACK),))).exit_code == 0


@pytest.mark.parametrize("outcomes", [AS_WANTED, *OTHERWISE])
def test_the_command_that_the_loop_begins_with_exits_so(
    outcomes: tuple[str, str],
    page: Callable[..., LoopShown],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = page(*outcomes)
    monkeypatch.setattr(looping, "up", lambda *_, **__: shown.data)
    assert main(["up", "examples/laptop", "--try-releases"]) == (0 if outcomes == AS_WANTED else 3)
    assert "RELEASE" in capsys.readouterr().out


def test_what_rules_refuse_and_what_the_gate_says_are_held_against_what_was_wanted(
    beside: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registry and its rules are real; what evaluates and what tries a release are stand-ins."""
    request, losses = requested(beside), {"chat:1": 2.0, "chat:2": 3.0, "chat:3": 2.0}

    def evaluated(opened: Registry, reference: str, texts: Path, by: str, alias: str, *_: Any) -> Any:
        told = {"set_sha256": releasing.sha256_of(texts), "loss_nats": losses[reference]}
        told |= {"beside": opened.find(f"chat@{alias}").digest, "ttft_p95_s": 0.01, "memory_bytes": 1.0}
        return opened.evaluated(reference, replace(FOUND, **told), by)

    def copied(source: Path, folder: Path) -> None:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("manifest.json"))

    monkeypatch.setattr(releasing, "measured", evaluated)
    monkeypatch.setattr(trying, "VARIANTS", [replace(each, made=copied) for each in VARIANTS])
    monkeypatch.setattr(trying.trials, "offer_release", lambda *_: 0.0)
    monkeypatch.setattr(trying, "until_decided", lambda _, __, kind, ___: ended(kind, PROMOTED))
    opened = Registry(request.registry)
    evaluated(opened, "chat:1", releasing.held_out(request), "up", "serving")
    opened.close()
    first, second = try_variants(request, GATE)
    assert (first.version, first.outcome, first.wanted) == ("chat:2", REFUSED, PROMOTED)
    assert "loss" in first.why
    assert (second.outcome, second.wanted) == (PROMOTED, ROLLED_BACK)
    assert LoopShown(replace(PAGE, releases=(first, second))).exit_code == 3
