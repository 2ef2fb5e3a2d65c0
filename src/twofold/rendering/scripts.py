"""The scripts of the target `shell`, one run or pool at a time: what other targets start."""

from dataclasses import replace

from twofold.rendering.files import RenderedFile
from twofold.rendering.given import Given
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.shell import shell_files


def run_files(run: TrainedRun, given: Given) -> tuple[RenderedFile, ...]:
    """The script of a run, `NAME.sh`, and the files that it reads."""
    return shell_files(replace(given, pools=(), runs=(run,)))


def pool_script(pool: ServedPool, given: Given) -> RenderedFile:
    """What starts one replica."""
    return shell_files(replace(given, pools=(pool,), runs=()))[0]
