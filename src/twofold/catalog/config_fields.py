"""The fields of a model's config.json: nested text part, names across families, places of what is wrong."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core import ModelConfigError, Place

FILE_LIMIT_BYTES = 4 * 2**20
COUNT_LIMIT = 10**8  # no width, layer count or vocabulary is larger
TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The fields that describe the language model, and the text they stand in. Null counts as absent."""

    file: str
    name: str
    text: str
    values: dict[str, Any]

    def has(self, *names: str) -> bool:
        return any(self._raw(name) is not _ABSENT for name in names)

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number above 0 under the first name that stands; 0 is read where there is a default."""
        found = self._first(names)
        if found is None:
            if default is not None:
                return default
            hint = "state " + " or ".join(f"`{name}`" for name in names)
            raise ModelConfigError(f"`{names[0]}` is missing", place=Place(self.file, 1, 1), hint=hint)
        name, value = found
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, f"{_shown(value)} is not a whole number")
        least = 1 if default is None else 0
        if not least <= value <= COUNT_LIMIT:
            raise self.wrong(name, f"{_shown(value)} is not from {least} to {COUNT_LIMIT:,}")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """True or false under the first name that stands."""
        name, value = self._first(names) or ("", default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{_shown(value)} is neither true nor false")
        return value

    def word(self, *names: str, default: str) -> str:
        """Text under the first name that stands."""
        name, value = self._first(names) or ("", default)
        if not isinstance(value, str):
            raise self.wrong(name, f"{_shown(value)} is not text")
        return value

    def listed(self, *names: str) -> list[Any]:
        """The list under the first name that holds one; empty where none does."""
        return next((value for value in map(self._raw, names) if isinstance(value, list)), [])

    def nested(self, name: str) -> dict[str, Any]:
        """The object under this name; empty where there is none."""
        value = self._raw(name)
        return value if isinstance(value, dict) else {}

    def wrong(self, names: str | tuple[str, ...], message: str) -> ModelConfigError:
        """An error at the field, or at the first of several names that stands."""
        names = (names,) if isinstance(names, str) else names
        field = (self._first(names) or (names[0], None))[0]
        match = re.search(rf'"{re.escape(field.rsplit(".", 1)[-1])}"\s*:', self.text)
        at = match.start() if match else 0
        place = Place(self.file, self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))
        return ModelConfigError(f"`{field}`: {message}", place=place)

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        found = ((name, self._raw(name)) for name in names)
        return next(((name, value) for name, value in found if value is not _ABSENT), None)

    def _raw(self, name: str) -> Any:
        """The value; a dot goes into a nested object."""
        value: Any = self.values
        for part in name.split("."):
            if not isinstance(value, dict) or value.get(part) is None:
                return _ABSENT
            value = value[part]
        return value


def read_fields(path: Path) -> ConfigFields:
    """The file's fields; those of the nested text model stand before those around it."""
    text, start = _read(path), Place(str(path), 1, 1)
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise ModelConfigError(
            f"not JSON: {error.msg}", place=Place(str(path), error.lineno, error.colno)
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, endless nesting
        raise ModelConfigError("not readable as JSON", place=start) from None
    if not isinstance(whole, dict):
        raise ModelConfigError("the file is not a JSON object", place=start)
    values = dict(whole)
    for _ in TEXT_PARTS:  # a text part may lie inside another: thinker_config.text_config
        nested = [values[key] for key in TEXT_PARTS if isinstance(values.get(key), dict)]
        if nested:
            values = {key: value for key, value in values.items() if key not in TEXT_PARTS} | nested[0]
    stated = whole.get("_name_or_path")
    name = stated.rstrip("/").rsplit("/", 1)[-1] if isinstance(stated, str) else ""
    stem = path.stem if path.stem != "config" else path.resolve().parent.name
    return ConfigFields(str(path), name or stem or "model", text, values)


def _read(path: Path) -> str:
    place = Place(str(path), 1, 1)
    try:
        if path.stat().st_size > FILE_LIMIT_BYTES:
            raise ModelConfigError(f"the file is larger than {FILE_LIMIT_BYTES >> 20} MiB", place=place)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ModelConfigError(f"cannot read the file: {error.strerror}", place=place) from None
    except UnicodeDecodeError:
        raise ModelConfigError("this is not text", place=place, hint="give a model's config.json") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"
