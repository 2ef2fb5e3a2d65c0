"""The target `shell`: one script for each pool of replicas and each run, to start on a machine by hand."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twofold.rendering.commands import Command, option_lines, variable_lines
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.own import PORT
from twofold.rendering.parted import routers, worker_files
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.runtimes import engine_name
from twofold.rendering.slices import by_hand

HERE = 'export FILES="${FILES:-$(dirname "$0")}"'


def shell_files(given: Given) -> tuple[RenderedFile, ...]:
    """A script for each pool and each run, with the files that they read."""
    pools = [file for pool in given.pools for file in _serving_files(pool, given)]
    pools += routers(given.pools, [engine_name(pool) for pool in given.pools], given.digest)
    return (*pools, *(file for run in given.runs for file in _training_files(run, given)))


def _serving_files(pool: ServedPool, given: Given) -> tuple[RenderedFile, ...]:
    """One replica of a pool, and what it reads. How many, and on what, stands in the head."""
    command, beside = (
        _by_port(given.engine_command(pool)),
        worker_files(pool, engine_name(pool), given.digest),
    )
    lines = [
        "#!/usr/bin/env bash",
        *head(pool.title, given.digest, [*command.lost, *by_hand(pool.service.machine.accelerator, given)]),
        f"# {pool.pool.replica_count} = {pool.at}.replica_count, {pool.pool.spare_count} of them spare",
        *_body(command, [*given.pool_assignments(pool), *([HERE] if beside else [])]),
    ]
    return RenderedFile(f"{pool.name}.sh", "\n".join(lines) + "\n", executable=True), *beside


def _by_port(command: Command) -> Command:
    """A server of the user's own keeps the port that the script is started with."""
    kept = [
        replace(each, value=f'"${{{PORT}:-{each.value}}}"') if each.flag == PORT else each
        for each in command.variables
    ]
    return replace(command, variables=tuple(kept))


def _training_files(run: TrainedRun, given: Given) -> tuple[RenderedFile, ...]:
    """A run, started on each of its nodes with the number of the node, and the files that it reads."""
    command, beside = given.trainer_files(run)
    lines = [
        "#!/usr/bin/env bash",
        *head(run.title, given.digest, [*command.lost, *by_hand(run.run.machine.accelerator, given)]),
        *(f"# {note}" for note in command.notes),
        *_body(command, [*given.run_assignments(run), *([HERE] if beside else [])]),
    ]
    return RenderedFile(f"{run.name}.sh", "\n".join(lines) + "\n", executable=True), *beside


def _body(command: Command, assignments: Sequence[str]) -> Iterator[str]:
    """From here on every step that fails ends the script; the program takes the script's place."""
    yield "set -euo pipefail"
    yield from assignments
    yield from variable_lines(command.variables)
    told = ""
    if command.options:
        yield "options=("
        yield from option_lines(command.options)
        yield ")"
        told = '"${options[@]}" '
    yield f'exec {" ".join(command.program)} {told}"$@"'
