"""Verbs as commands: parsed words go to a function of `app`, its answer to stdout, files and exit code."""

# ruff: noqa: ARG002 (click calls these methods with a context, needed or not)

import os
import sys
from datetime import UTC, date, datetime
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc, signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from twofold import __version__
from twofold.cli.options import Verb
from twofold.cli.verbs import EXIT_CODES, VERBS
from twofold.core.errors import FileError, InfeasibleError, UsageError
from twofold.report.lines import ENDLESS, WIDTH, tables_within

COLUMNS = "TWOFOLD_COLUMNS"
STDOUT = Path("-")
STATE = Path(".twofold")  # made when something is written there


class QuestionGroup(click.Group):
    """A verb with questions of its own, such as `estimate`: without one it says what to write."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and "--help" not in args and not set(self.commands).intersection(args):
            stray = next((word for word in args if not word.startswith("-")), "")
            near = get_close_matches(stray, self.commands, n=1) or [next(iter(self.commands))]
            what = f"`{stray}` is no question of" if stray else "a question is missing behind"
            hint = f"write `{ctx.command_path} {near[0]} …`; questions: {', '.join(self.commands)}"
            raise UsageError(f"{what} `{self.name}`", hint=hint)
        if args and args[0].startswith("-") and "--help" not in args:
            asked = next(word for word in args if word in self.commands)
            hint = f"write it behind: `{ctx.command_path} {asked} … {args[0]}`"
            raise UsageError(f"`{args[0]}` stands before the question", hint=hint)
        return super().parse_args(ctx, args)


class VerbGroup(click.Group):
    """The `twofold` command. Listing it reads the table; a verb becomes a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name, VERBS[cmd_name]) if cmd_name in VERBS else None

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


def command_of(name: str, verb: Verb) -> click.Command:
    """A verb as click runs it."""
    said: dict[str, Any] = {"help": cleandoc(verb.help), "epilog": verb.epilog() or None}
    if verb.questions:
        asked = {each: command_of(each, question) for each, question in verb.questions.items()}
        return QuestionGroup(name, asked, **said)

    def called(**parsed: Any) -> None:  # named by the table: only it knows them
        answer_verb(verb, parsed)

    for parameter in reversed(verb.parameters):
        called = parameter(called)
    return click.command(name, click.Command, short_help=verb.summary or None, **said)(called)


def answer_verb(verb: Verb, parsed: dict[str, Any]) -> None:
    """Call the verb's function, print its answer, write what is asked for, and exit with its code."""
    as_json, force = parsed.pop("as_json"), parsed.pop("force", False)
    asked = _asked_table(parsed, as_json)
    kept: Path | None = parsed.pop("kept", None)
    words = verb.gathered(parsed)
    for path in (kept, *(words[name] for name in verb.writes)):
        if path is not None and path != STDOUT:
            check_free(path, force)
    for folder in (words[name] for name in verb.fills):
        if folder is not None:
            check_folder(folder)
    module, _, name = verb.answer.partition(".")
    with verb.progress() as tell, tables_within(columns()):  # before the import, a third of a short plan
        function = attrgetter(name)(import_module(f"twofold.app.{module}"))
        taken = signature(function).parameters
        whole = as_json or asked is not None
        known = {"today": today(), "tell": tell, "as_json": whole, "as_data": whole or kept is not None}
        known["force"] = force
        try:
            answer = function(**words, **{name: known[name] for name in known if name in taken})
        except InfeasibleError as error:
            if kept and error.left:
                write_text(kept, error.left.saved_at(kept))
            if asked is not None and error.left:
                click.echo(error.left.to_csv(asked), nl=False)
            raise
        said = printed(answer, as_json, asked)
    if kept:
        write_text(kept, answer.saved_at(kept))
    click.echo(said, nl=False)
    if answer.exit_code:
        click.get_current_context().exit(answer.exit_code)


def printed(answer: Any, as_json: bool, table: str | None) -> str:
    """What stdout gets: lines for people, all data, or one table of them."""
    if table is not None:
        return str(answer.to_csv(table))
    return str(answer.json) if as_json else "\n".join((*answer.lines, ""))


def columns() -> int:
    """How wide a table may be: as a screen where somebody looks, else as it is, or as COLUMNS says."""
    stated = os.environ.get(COLUMNS, "")
    if stated.isdecimal() and len(stated) < 6:
        return max(WIDTH, int(stated))
    return WIDTH if sys.stdout.isatty() else ENDLESS


def _asked_table(parsed: dict[str, Any], as_json: bool) -> str | None:
    """The name of the table that is to be printed, "" for the main one; None where none is asked for."""
    as_csv, name = parsed.pop("as_csv", False), parsed.pop("csv_table", "")
    if not as_csv and not name:
        return None
    if as_json:
        raise UsageError("one table is asked for, and all data", hint="leave out `--csv` or `--json`")
    return str(name)


def today() -> date:
    """The day that prices are judged by; SOURCE_DATE_EPOCH fixes it where output must be repeatable."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(epoch), UTC).date() if epoch.isdigit() else date.today()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"`SOURCE_DATE_EPOCH={epoch[:32]}` is no day", hint="seconds since 1970") from None


def check_free(path: Path, force: bool) -> None:
    """Raises FileError if `path` is there and may not be replaced. Asked before the work, not after it."""
    if path.is_dir():
        raise FileError(f"`{path}` is a folder", hint="name a file in it")
    if path.is_file() and not force:
        raise FileError(f"`{path}` exists", hint="write elsewhere, or add `--force` to replace it")
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir() and path != STATE / "calibration.json":  # `calibrate` makes that folder
        raise FileError(f"`{folder}` does not exist", hint="make the folder first")
    if path.is_file() or not path.exists():  # a device or a pipe is written to as it stands
        check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raises FileError if `folder` takes no new files, or cannot be made. Asked before the work likewise."""
    whole = folder.absolute()
    near = next(each for each in (whole, *whole.parents) if each.exists())
    if not near.is_dir():
        raise FileError(f"`{near}` is no folder", hint="write elsewhere")
    if not os.access(near, os.W_OK | os.X_OK):
        raise FileError(f"`{near}` may not be written to", hint="write elsewhere")


def write_text(path: Path, text: str) -> None:
    """All of the text or nothing."""
    from twofold.app.sources import whole_file

    with whole_file(path) as handle:
        handle.write(text)
