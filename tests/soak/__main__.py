"""`python -m tests.soak`: many rounds of each fault, and the page that says how the service took them.

Ends with 1 where an invariant did not hold; the page then names the seed that `--seed` repeats.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.soak.clients import PATIENCE_S
from tests.soak.faults import FAULTS
from tests.soak.live_releases import RATE_PER_S, live_trials
from tests.soak.memory import over
from tests.soak.overload import Overload, beside_a_noisy_one, overloaded
from tests.soak.page import (
    Setting,
    kept_sections,
    live_releases_section,
    memory_section,
    overload_section,
    page_of,
    releases_section,
    training_section,
    with_section,
)
from tests.soak.releases import GOOD, Ended, trials
from tests.soak.rounds import AGREE_S, CLIENTS, Trial, run_trial
from tests.soak.services import CONTEXT_TOKENS, PACE_S, stub_service
from tests.soak.training import cases_of

FALSE_ALARMS_MOST, MISSES_MOST = 0.05, 0.10  # of the trials of a kind of release


def main() -> None:
    """The command line."""
    options = _options()
    wrong = _faults(options) if options.rounds else []
    if options.overload_s:
        _keep(
            options.out, overload_section(_loads(options.overload_s), options.overload_s, _setting(options))
        )
    if options.memory:
        with tempfile.TemporaryDirectory() as folder:
            memory = asyncio.run(over(Path(folder), options.memory))
        _keep(options.out, memory_section(memory, _setting(options)))
    if options.training:
        _keep(options.out, training_section(cases_of(options.training), _setting(options)))
    if options.releases:
        with tempfile.TemporaryDirectory() as folder:
            ended = trials(Path(folder), options.releases)
        _keep(options.out, releases_section(ended, list(GOOD), _setting(options)))
        wrong += _wrong_releases(ended)
    if options.live_releases:
        with tempfile.TemporaryDirectory() as folder:
            live = live_trials(Path(folder), options.live_releases)
        _keep(options.out, live_releases_section(live, list(GOOD), RATE_PER_S, _setting(options)))
        wrong += _wrong_releases(live)
    sys.exit(1 if wrong else 0)


def _faults(options: argparse.Namespace) -> list[str]:
    """Every fault in every trial; what did not hold."""
    trials = list[Trial]()
    for seed in range(options.seed, options.seed + options.rounds):
        began_s, chance = time.monotonic(), Random(seed)
        faults = chance.sample(list(FAULTS), len(FAULTS))
        bound = chance.choice((CONTEXT_TOKENS, 100_000))  # of the context, or of the cache
        with tempfile.TemporaryDirectory() as folder:
            trials.append(asyncio.run(run_trial(stub_service(Path(folder), bound), faults, str(seed))))
        wrong = _wrong(trials[-1])
        took = f"seed {seed}: {len(faults)} faults in {time.monotonic() - began_s:.0f} s, {len(wrong)} wrong"
        print(took, *wrong, sep="\n  ", flush=True)
        before = options.out.read_text("utf-8") if options.out.exists() else ""
        options.out.write_text(
            "\n".join([page_of(trials, _setting(options)), *kept_sections(before)]), "utf-8"
        )
    return [each for trial in trials for each in _wrong(trial)]


def _wrong_releases(ended: Mapping[str, Sequence[Ended]]) -> list[str]:
    """Where the gate was wrong more often than is promised."""
    wrong = []
    for kind, each in ended.items():
        promoted, most = sum(one.promoted for one in each) / len(each), MISSES_MOST
        off = promoted
        if kind in GOOD:
            off, most = 1.0 - promoted, FALSE_ALARMS_MOST
        print(f"{kind}: wrong in {off:.0%} of {len(each)}", flush=True)
        if off > most:
            wrong.append(f"{kind}: wrong in {off:.0%}, more than {most:.0%}")
        wrong += [
            f"{kind}: {one.to_release} requests went to it, beyond its stages' {one.stage_requests}"
            for one in each
            if one.to_release > one.stage_requests and not one.promoted
        ]
    return wrong


def _loads(seconds: float) -> Overload:
    with tempfile.TemporaryDirectory() as folder:
        over_all = asyncio.run(overloaded(Path(folder), seconds, (0.9, 1.0, 3.0)))
    with tempfile.TemporaryDirectory() as folder:
        return Overload(over_all, *asyncio.run(beside_a_noisy_one(Path(folder), seconds)))


def _keep(out: Path, section: str) -> None:
    out.write_text(with_section(out.read_text("utf-8") if out.exists() else "", section), "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--overload-s", type=float, default=0.0, help="seconds of each load; 0: none")
    parser.add_argument("--memory", type=int, default=0, help="requests of which the memory is looked at")
    parser.add_argument("--training", type=Path, nargs="+", default=(), help="reports of training's faults")
    parser.add_argument("--releases", type=int, default=0, help="trials of each kind of release")
    parser.add_argument("--live-releases", type=int, default=0, help="the same on engines that serve")
    parser.add_argument("--out", type=Path, default=Path("docs/soak.md"))
    parser.add_argument("--shared", action="store_true", help="other work runs on this machine: say so")
    return parser.parse_args()


def _wrong(trial: Trial) -> list[str]:
    return trial.wrong + [f"{made.fault}: {each}" for made in trial.rounds for each in made.wrong]


def _setting(options: argparse.Namespace) -> Setting:
    told = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return Setting(
        commit=told.stdout.strip() or "unknown",
        date=datetime.now(UTC).date().isoformat(),
        seeds=f"{options.seed} to {options.seed + options.rounds - 1}",
        cores=os.cpu_count() or 0,
        shared=options.shared,
        load=os.getloadavg()[1],
        clients=CLIENTS,
        pace_ms=PACE_S * 1e3,
        patience_s=PATIENCE_S,
        agree_s=AGREE_S,
    )


if __name__ == "__main__":
    main()
