"""Which exporter of OpenTelemetry's SDK the environment asks for; none by default, as its documents say."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from twofold.core import errors


def exporter_of(
    environment: Mapping[str, str], variable: str, what: str, made: Mapping[str, Callable[[], Any]]
) -> Any:
    """What makes the exporter that `variable` names, by its name in `made`, makes; None: it names none.

    `what` goes there, in words. Raises MissingExtraError without the SDK, ValueRefusedError for another name.
    """
    name = environment.get(variable, "none").strip().lower()
    if name in ("", "none"):
        return None
    if name not in made:
        known = " or ".join(f"`{each}`" for each in made)
        said = f"{variable} is `{name}`, and {what} go by {known}"
        raise errors.ValueRefusedError(said, hint="or set it to `none`")
    try:
        return made[name]()
    except ImportError as error:
        hint = f"install it with `pip install 'twofold[otel]'`, or unset {variable}"
        raise errors.MissingExtraError(f"{variable} needs `{error.name}`", hint=hint) from error


def of(module: str, name: str) -> Any:
    """A class of the SDK, by its module below `opentelemetry`. Raises ImportError."""
    return getattr(import_module(f"opentelemetry.{module}"), name)
