"""`twofold simulate`: a plan in the twin, under its own traffic or yours, and under what goes wrong."""

import os
from importlib.resources import files
from pathlib import Path

import click

from twofold.cli.output import (
    check_free,
    force_option,
    json_option,
    out_option,
    print_lines,
    today,
    write_text,
)
from twofold.cli.progress import patient_bar
from twofold.core import UsageError

MISSED = 3


def _scenarios() -> str:
    """What stands in the package, without reading it: `--help` is light."""
    names = (path.name.removesuffix(".yaml") for path in files("twofold").joinpath("scenarios").iterdir())
    return f"Scenarios, besides YAML files of yours: {', '.join(sorted(names))}."


@click.command("simulate", epilog=_scenarios())
@click.argument("source", type=click.Path(path_type=Path), metavar="SPEC|PLAN")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="[CLASS=]FILE",
    help="Replay this trace as the traffic of a class, of the first one by default.",
)
@click.option("--only", metavar="CLASS", help="Send the requests of this class alone.")
@click.option(
    "--scenario", default="as-planned", show_default=True, metavar="NAME|FILE", help="What happens meanwhile."
)
@click.option("--seed", default=0, show_default=True, type=int, help="Of every draw.")
@click.option("--compare", metavar="A,B", help="Two scenarios under the same seeds, with intervals.")
@click.option("--sweep", metavar="KEY=A,B,…", help="One key of the scenario at several values.")
@click.option(
    "--engine",
    type=click.Choice(["processes", "ray"]),
    default="processes",
    show_default=True,
    metavar="NAME",
    help="Runs happen in `processes` of this machine, or on `ray` (extra `ray`).",
)
@click.option("--requests", type=click.Path(path_type=Path), help="Write every request to this CSV.")
@click.option("--timeline", type=click.Path(path_type=Path), help="Write the run over time to this CSV.")
@click.option("--jobs", type=click.Path(path_type=Path), help="Write every training job to this CSV.")
@json_option
@out_option
@force_option
@click.pass_context
def command(
    ctx: click.Context,
    source: Path,
    traces: tuple[str, ...],
    only: str | None,
    scenario: str,
    seed: int,
    compare: str | None,
    sweep: str | None,
    engine: str,
    requests: Path | None,
    timeline: Path | None,
    jobs: Path | None,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Rehearse SPEC, which is planned first, or PLAN, the JSON that `plan --out` wrote, in the digital twin.

    NAME:VARIANT is a scenario with what one of its variants changes. Exits 3 when a goal is missed.
    """
    from twofold.app import Simulated, SimulateOptions, parse_sweep, simulate, simulate_sweep

    if sweep and (compare or requests or timeline or jobs):
        hint = "leave --compare, --requests, --timeline and --jobs out"
        raise UsageError("a sweep has many runs", hint=hint)
    for path in (out, requests, timeline, jobs):
        if path:
            check_free(path, force)
    options = SimulateOptions(
        scenario=scenario,
        traces=_by_class(traces),
        only=only,
        seed=seed,
        compare=_pair(compare),
        requests=requests,
        timeline=timeline,
        jobs=jobs,
        engine=engine,
    )
    with patient_bar() as tell:
        given = (options, today(), tell, _core_count())
        answer = simulate_sweep(source, parse_sweep(sweep), *given) if sweep else simulate(source, *given)
    if out:
        write_text(out, answer.json)
    if as_json:
        click.echo(answer.json, nl=False)
    else:
        print_lines(answer.lines)
    points = (answer.data,) if isinstance(answer, Simulated) else answer.data.points
    if not any(point.slos_met for point in points):
        ctx.exit(MISSED)


def _core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _by_class(traces: tuple[str, ...]) -> dict[str, Path]:
    """`chat=a.csv` by class; a file alone stands for the first class."""
    found: dict[str, Path] = {}
    for text in traces:
        name, sign, path = text.partition("=")
        if sign and ("/" in name or Path(text).exists()):  # a path that holds the sign
            name, path = "", text
        name, path = (name, path) if sign else ("", text)
        if name in found:
            whose = f"`{name}`" if name else "the first class"
            raise UsageError(f"two traces for {whose}", hint="give each class one trace")
        found[name] = Path(path)
    return found


def _pair(compare: str | None) -> tuple[str, str] | None:
    if compare is None:
        return None
    names = [name.strip() for name in compare.split(",")]
    if len(names) != 2 or not all(names):
        hint = "write for example `--compare zone-loss,zone-loss-no-spares`"
        raise UsageError(f"`--compare {compare}` names no two scenarios", hint=hint)
    return names[0], names[1]
