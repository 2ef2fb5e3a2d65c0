"""Files of plans that are changed by hand, and scripts read back by the shell itself."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from twofold.app.rendering import render
from twofold.contracts.results.plan import Plan

Files = Mapping[str, str]
SET = {
    **dict.fromkeys(
        ("DATA", "DATASET", "TOKENIZER", "TRAIN_SCRIPT", "CONFIG", "RECIPE", "CHECKPOINTS"), "given"
    ),
    "ROTARY_BASE": "500000",
    "NODE_RANK": "3",
    "MASTER_ADDR": "node-0",
}


def texts(plan: Plan, target: Any) -> Files:
    return {each.path: each.text for each in render(plan, target).files}


def with_run(plan: Plan, **changed: Any) -> Plan:
    """The plan with something else in its first run; of a `layout` what is named."""
    run = plan.training[0]
    assert run.layout is not None
    layout = replace(run.layout, **changed.pop("layout", {}))
    return replace(plan, training=(replace(run, layout=layout, **changed),))


def with_replica(plan: Plan, **changed: Any) -> Plan:
    """The plan with another replica in the first pool of its first service."""
    service = plan.serving[0]
    pool = service.pools[0]
    pool = replace(pool, replica=replace(pool.replica, **changed))
    return replace(plan, serving=(replace(service, pools=(pool,)),))


def words_of(script: str, folder: Path) -> list[str]:
    """What the script would start, word for word, by a shell whose `exec` prints."""
    path = folder / "script.sh"
    path.write_text(script, "utf-8")
    shown = f"exec() {{ printf '%s\\0' \"$@\"; }}; . {path}"
    done = subprocess.run(
        ["bash", "-c", shown], capture_output=True, env=SET | given_weights(script), check=True
    )
    return done.stdout.decode().split("\0")[:-1]


def given_weights(script: str) -> dict[str, str]:
    names = {word.split("=")[0] for word in script.split() if word.startswith("WEIGHTS_")}
    return {"PATH": os.environ["PATH"]} | dict.fromkeys(names, "weights")


def after(words: list[str], flag: str) -> str:
    """The value behind an option."""
    return words[words.index(flag) + 1]
