"""Reads a spec's file. Everything wrong is found in one pass; each error says where and what to write."""

from pathlib import Path

from pydantic import ValidationError

from twofold.contracts import Names
from twofold.contracts.spec.problems import problems
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.yaml_nodes import Mapping, Scalar, plain, read_nodes
from twofold.core import EncodingError, FileError, FileSizeError, InputErrors, Place, ShapeError

SIZE_LIMIT_BYTES = 1_000_000


def read_spec(path: Path, names: Names | None = None) -> Spec:
    """The spec in a file. Paths inside it are relative to its folder; `names` are what the catalogue knows.

    Raises InputErrors with everything that is wrong, or the one error that keeps the file from being read.
    """
    return parse_spec(read_text(path), str(path), names, folder=path.parent)


def parse_spec(text: str, file: str, names: Names | None = None, folder: Path | None = None) -> Spec:
    """The spec in a text; `file` is what errors call it."""
    root = read_nodes(text, file)
    if not isinstance(root, Mapping):
        what = f"the text `{root.text[:32]}`" if isinstance(root, Scalar) else "a list"
        keys = ", ".join(field.alias or name for name, field in Spec.model_fields.items())
        raise ShapeError(f"a spec needs keys, not {what}", place=root.place, hint=f"keys: {keys}")
    context = {"names": names or Names(), "folder": folder}
    try:
        return Spec.model_validate(plain(root), context=context)
    except ValidationError as error:
        raise InputErrors(problems(error, root, Spec)) from error


def read_text(path: Path) -> str:
    """A text file of at most 1 MB. Its size is asked before a byte is read."""
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
            raise FileError(f"`{path}` {what}", hint="`twofold init` writes a starter spec")
        size_bytes = path.stat().st_size
        if size_bytes > SIZE_LIMIT_BYTES:
            limit = f"{SIZE_LIMIT_BYTES / 1e6:g} MB"
            raise FileSizeError(f"`{path}` has {size_bytes / 1e6:.1f} MB; at most {limit} are read")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise FileError(f"cannot read `{path}`: {getattr(error, 'strerror', None) or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise EncodingError(
            f"byte {error.start} is not UTF-8 text",
            place=Place(str(path), line, column),
            hint="save the file as UTF-8",
        ) from error
