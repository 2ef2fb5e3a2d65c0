"""The scripts of the target `shell`, one run or pool at a time: what other targets start."""

import re
from collections.abc import Mapping
from dataclasses import replace

from twofold.rendering.files import RenderedFile
from twofold.rendering.given import Given
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.shell import shell_files

USED = re.compile(r"\$\{([A-Z]\w*)")
ASKED = re.compile(r"\$\{([A-Z]\w*):\?(?:set it to )?([^}]*)\}")


def run_files(run: TrainedRun, given: Given) -> tuple[RenderedFile, ...]:
    """The script of a run, `NAME.sh`, and the files that it reads."""
    return shell_files(replace(given, pools=(), runs=(run,)))


def pool_script(pool: ServedPool, given: Given) -> RenderedFile:
    """What starts one replica."""
    return shell_files(replace(given, pools=(pool,), runs=()))[0]


def used_by(script: RenderedFile) -> frozenset[str]:
    """The variables that a script reads."""
    return frozenset(USED.findall(script.text))


def asked_by(script: RenderedFile) -> Mapping[str, str]:
    """Those without which it ends at once, and what each is to be set to."""
    return dict(ASKED.findall(script.text))
