"""The verbs in their groups, as one table: a verb's module is imported when it is called."""

# ruff: noqa: ARG002 (click calls these methods with a context, needed or not)

from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

import click

from twofold import __version__


class Verb(NamedTuple):
    group: str
    module: str  # under twofold.cli, holding a click command named `command`
    summary: str


VERBS = {
    "init": Verb("decide", "init", "Write a commented starter spec, or infer one from what you run"),
    "check": Verb("decide", "check", "Validate a spec: every error in one pass, with its place"),
    "plan": Verb("decide", "plan", "Plan both halves of a spec on one screen"),
    "compare": Verb("decide", "compare", "Each half on the other's fleet, or one axis at a time"),
    "estimate": Verb("decide", "estimate", "Answer one question without a spec"),
    "explain": Verb("decide", "explain", "Show where a number of a plan comes from"),
    "diff": Verb("decide", "diff", "Show what changed between two plans"),
    "catalog": Verb("decide", "catalog", "List and filter the tables that plans are made from"),
    "claims": Verb("decide", "claims", "Judge what circulates about infrastructure by the product itself"),
    "simulate": Verb("rehearse", "simulate", "Rehearse a plan in the digital twin, under traffic and faults"),
    "up": Verb("run", "up", "Train, serve and measure on this machine; planned beside measured"),
    "down": Verb("run", "down", "Stop what `up` started, and remove its state"),
    "measure": Verb("learn", "measure", "Measure this machine as a device that plans use"),
    "calibrate": Verb("learn", "calibrate", "Fit a few factors to rows that you measured, for plans beside"),
    "predict": Verb("learn", "predict", "Predict measured runs, row by row"),
    "validate": Verb("learn", "validate", "Score predictions on measured runs, against the goals"),
}

EXIT_CODES = "0 ok · 1 our bug · 2 bad input · 3 infeasible · 4 a difference found (diff)"


class VerbGroup(click.Group):
    """The `twofold` command. Listing it reads the table above; only the verb that runs is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"twofold.cli.{VERBS[cmd_name].module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = get_close_matches(args[0], VERBS, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"`{args[0]}` is not a verb{meant}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(verb.group for verb in VERBS.values()):
            with formatter.section(group.capitalize()):
                formatter.write_dl([(n, verb.summary) for n, verb in VERBS.items() if verb.group == group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_text(EXIT_CODES)


@click.command(cls=VerbGroup, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="twofold", message="%(prog)s %(version)s")
def twofold() -> None:
    """Plan LLM training and serving from one spec: sized, priced and explained, with honest ranges."""
