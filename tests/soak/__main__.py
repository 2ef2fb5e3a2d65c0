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
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.soak.clients import PATIENCE_S
from tests.soak.faults import FAULTS
from tests.soak.page import Setting, page_of
from tests.soak.rounds import AGREE_S, CLIENTS, Trial, run_trial
from tests.soak.services import CONTEXT_TOKENS, PACE_S, stub_service


def main() -> None:
    """The command line."""
    options = _options()
    seeds, trials = range(options.seed, options.seed + options.rounds), list[Trial]()
    for seed in seeds:
        began_s = time.monotonic()
        chance = Random(seed)
        faults = chance.sample(list(FAULTS), len(FAULTS))
        bound = chance.choice((CONTEXT_TOKENS, 100_000))  # of the context, or of the cache
        with tempfile.TemporaryDirectory() as folder:
            trials.append(asyncio.run(run_trial(stub_service(Path(folder), bound), faults, str(seed))))
        wrong = _wrong(trials[-1])
        print(
            f"seed {seed}: {len(faults)} faults in {time.monotonic() - began_s:.0f} s, {len(wrong)} wrong",
            *wrong,
            sep="\n  ",
        )
        sys.stdout.flush()
        options.out.write_text(page_of(trials, _setting(options, seeds)), "utf-8")
    sys.exit(1 if any(map(_wrong, trials)) else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--out", type=Path, default=Path("docs/soak.md"))
    parser.add_argument("--shared", action="store_true", help="other work runs on this machine: say so")
    return parser.parse_args()


def _wrong(trial: Trial) -> list[str]:
    return trial.wrong + [f"{made.fault}: {each}" for made in trial.rounds for each in made.wrong]


def _setting(options: argparse.Namespace, seeds: range) -> Setting:
    told = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return Setting(
        commit=told.stdout.strip() or "unknown",
        date=datetime.now(UTC).date().isoformat(),
        seeds=f"{seeds.start} to {seeds.stop - 1}",
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
