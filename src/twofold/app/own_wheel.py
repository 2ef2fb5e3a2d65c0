"""The package that runs, as a wheel: what was installed, or the checkout that it is run from."""

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import twofold
from twofold.core.errors import FileError

NAME = "twofold"
TAG = "py3-none-any"
LEFT_OUT = {"__pycache__"}
COMPILED = {".so", ".pyd"}  # the sources of what is compiled are there as well
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file: equal sources are equal bytes
METADATA = ("METADATA", "entry_points.txt")


def write_own_wheel(folder: Path) -> Path:
    """The wheel, written into a folder. Raises FileError where the package was not installed."""
    try:
        told = distribution(NAME)
    except ModuleNotFoundError as error:
        raise FileError(
            "this Twofold was not installed: it has no metadata", hint="`pip install .`"
        ) from error
    info = f"{NAME}-{told.version}.dist-info"
    wheel = folder / f"{NAME}-{told.version}-{TAG}.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _files(told, info):
            archive.writestr(_entry(name), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        record.append(f"{info}/RECORD,,\n")
        archive.writestr(_entry(f"{info}/RECORD"), "".join(record))
    return wheel


def _files(told: Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    package = Path(twofold.__file__).parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and not LEFT_OUT & set(path.parts) and path.suffix not in COMPILED:
            yield f"{NAME}/{path.relative_to(package).as_posix()}", path.read_bytes()
    for name in METADATA:
        text = told.read_text(name)
        if text is not None:
            yield f"{info}/{name}", text.encode()
    yield (
        f"{info}/WHEEL",
        f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode(),
    )


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
