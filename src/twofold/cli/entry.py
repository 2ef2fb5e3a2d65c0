"""The entry point: runs one command line; whatever goes wrong becomes text or data, and an exit code."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from twofold.cli.running import twofold
from twofold.core.data import to_json
from twofold.core.errors import FileError, InfeasibleError, InputError, InputErrors, TwofoldError, UsageError

DEBUG = "TWOFOLD_DEBUG"
COMPLETE = "_TWOFOLD_COMPLETE"  # set by the script of `twofold completion`


def run(argv: Sequence[str] | None = None) -> int:
    """One command line and its exit code; only Ctrl-C is left to the caller."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    asked = os.environ.get(COMPLETE, "")
    code = _completed(asked) if asked else _answered(words)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # told already; what stays in it would change the exit code when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _open_streams() -> None:
    """Streams that write all they are given or fail, closed ones too, whose number no file takes."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free, which is this stream's
        if stream is None or isinstance(getattr(stream, "buffer", None), io.RawIOBase):  # closed, unbuffered
            code = getattr(stream, "encoding", "utf-8")
            stream = open(number, "w" if number else "r", encoding=code, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        if number and hasattr(stream, "reconfigure"):  # a terminal without `×` gets `?`, not a traceback
            stream.reconfigure(errors="replace")


def _completed(instruction: str) -> int:
    """What the words that a shell holds may go on with; nothing where they are wrong already."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(twofold, {}, "twofold", COMPLETE, instruction)
    except (TwofoldError, click.ClickException, click.exceptions.Exit, OSError, KeyError, ValueError):
        return 0  # also where it is no shell that asks: it would read any word of ours as an answer


def _answered(words: list[str]) -> int:
    try:
        return _run(words)
    except TwofoldError as error:
        return _fail(error, words)
    except click.UsageError as error:
        return _fail(_usage_error(error), words)
    except click.Abort as aborted:
        raise KeyboardInterrupt from aborted
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has seen enough
            return 0
        return _fail(_file_error(error), words)
    except Exception as error:
        return _our_bug(error)


def _run(words: list[str]) -> int:
    code = 0
    try:
        with twofold.make_context("twofold", words) as context:
            twofold.invoke(context)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
    except click.exceptions.Exit as done:
        code = done.exit_code
    sys.stdout.flush()
    return code


def _fail(error: TwofoldError, words: list[str]) -> int:
    """Text for people on stderr; with `--json` the same as data on stdout."""
    for option, value in pairwise(words):  # a value is told with its option, as a file's is with its key
        before, found, after = error.message.partition(f"`{value}`")
        # What another program said stands in quotation marks, and stays as it said it.
        if option.startswith("--") and isinstance(error, InputError) and found and before.count('"') % 2 == 0:
            error.message = f"{before}`{option} {value}`{after}"
            break
    left = error.left if isinstance(error, InfeasibleError) else None
    with suppress(OSError):  # where nobody can be told, the exit code alone says it
        if "--json" in words:
            click.echo(left.json if left else to_json({"schema": SCHEMA, **failure_data(error)}), nl=False)
    with suppress(OSError):
        click.echo(failure_text(error), err=True)
        if left and not any(word.partition("=")[0] in DATA for word in words):
            click.echo("\n".join(left.lines))
    return error.exit_code


def _usage_error(error: click.UsageError) -> UsageError:
    message = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx else "twofold"
    return UsageError(message[:1].lower() + message[1:], hint=f"see `{command} --help`")


def _file_error(error: OSError) -> FileError:
    name = error.filename2 or error.filename
    where = f"`{name}`: " if name else ""
    hints = {
        errno.ENOSPC: "free some space, or write elsewhere",
        errno.EROFS: "write elsewhere",
        errno.EACCES: "check who may read and write there",
        errno.EISDIR: "name a file in it",
        errno.EBADF: "standard output is closed: leave it open, or lead it to a file",
    }
    return FileError(f"{where}{(error.strerror or str(error)).lower()}", hint=hints.get(error.errno or 0, ""))


def _our_bug(error: Exception) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    with suppress(OSError):
        click.echo(f"error[E-internal]: our bug, not yours: {what}", err=True)
        click.echo(f"hint: set {DEBUG}=1 to see where it happened", err=True)
    return 1


SCHEMA = "twofold/error/1"
DATA = ("--json", "--csv", "--table")  # what is left of a plan is told as data then, by who prints these
LONGEST_SOURCE_BYTES = 1_000_000


def failure_text(error: TwofoldError) -> str:
    """What stderr gets."""
    if isinstance(error, InfeasibleError):
        return "\n".join(map(_infeasible_text, [error, *error.others]))
    from twofold.contracts.render import render_error  # loads pydantic: not for `--help`

    return render_error(error, _source_lines(error))


def failure_data(error: TwofoldError) -> dict[str, Any]:
    """Schema `twofold/error/1`: every error with its code, place and hint; an infeasible plan's lines too."""
    return {"exit_code": error.exit_code, "errors": [_as_data(one) for one in _single(error)]}


def _single(error: TwofoldError) -> list[TwofoldError]:
    if isinstance(error, InfeasibleError):
        return [error, *error.others]
    return [*error.errors] if isinstance(error, InputErrors) else [error]


def _as_data(error: TwofoldError) -> dict[str, Any]:
    data: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    data["place"] = error.place._asdict() if error.place else None
    if isinstance(error, InfeasibleError):
        data["lines"] = [{"label": label, "text": text} for label, text in error.lines]
    return data


def _infeasible_text(error: InfeasibleError) -> str:
    from twofold.contracts.render import error_lines
    from twofold.report.lines import field

    said = [line for label, text in error.lines for line in field(label, text)]
    hint = error_lines(f"hint: {error.hint}", "      ") if error.hint and not error.left else []
    return "\n".join([*error_lines(f"infeasible: {error.message}", "  "), *said, *hint])


def _source_lines(error: TwofoldError) -> list[str]:
    """The lines of the file that an error points into; none when it cannot be shown."""
    place = next((one.place for one in _single(error) if one.place), None)
    path = Path(place.file) if place else None
    try:
        if path and path.is_file() and path.stat().st_size <= LONGEST_SOURCE_BYTES:
            return path.read_text("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        pass  # the error itself is what matters; it is shown without its line
    return []
