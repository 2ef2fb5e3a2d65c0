"""`registry bundle`: all that a machine without a network needs to install, plan, and serve one version."""

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import twofold
from twofold.app import install
from twofold.app.locked_part import PIN, check_extras, needed_part, plain
from twofold.app.own_wheel import write_own_wheel
from twofold.core.display import format_bytes
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.registry.registry import MARKED, Described, Registry
from twofold.live.training.artefact import sha256_of, write_whole
from twofold.report.answers import Shown

LOCK, LIVE_LOCK = "requirements.lock", "requirements-live.lock"
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
DOCUMENTS = ("README.md", "LICENSE", "THIRD_PARTY_DATA.md", "CHANGELOG.md", "docs", "examples")
NOT_DOCUMENTS = (".twofold*", "__pycache__", "*-lock")
DOWNLOAD_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class ShownBundle(Shown):
    """A bundle that was written."""

    schema = "twofold/bundle/1"
    folder: Path
    version: str
    model: str  # its digest
    wheel_count: int
    file_count: int
    size_bytes: int
    digest: str  # of its list of digests

    @property
    def lines(self) -> list[str]:
        """What it holds, and how it is installed."""
        held = f"{self.wheel_count} wheels, {self.version}, {self.file_count} files"
        return [
            f"{self.folder}: {held}, {format_bytes(self.size_bytes)}",
            f"model  {self.model}",
            f"bundle {self.digest}",
            "give that digest another way than the bundle; there: `python3 install.py FOLDER`",
        ]

    @property
    def as_data(self) -> dict[str, Any]:
        names = ("version", "model", "wheel_count", "file_count", "size_bytes", "digest")
        return {"folder": str(self.folder), **{name: getattr(self, name) for name in names}}


def bundle(
    reference: str,
    out: Path,
    registry: Path,
    lock: Path | None,
    wheels: Path | None,
    tell: Callable[[str], None],
    extras: Sequence[str] = (),
) -> ShownBundle:
    """Write the bundle of a version into a new folder: whole, or not at all.

    With `extras`, what they and the core need of the lock. Raises FileError for a lock or a wheel that is not
    there, ValueRefusedError for an extra that nobody knows and where pip could not download.
    """
    opened = Registry(registry)
    described = opened.trusted(reference)
    if out.exists():
        raise FileError(f"`{out}` exists", hint="name a folder that is not there")
    check_extras(extras)
    lock = lock or _checkout() / (LIVE_LOCK if extras else LOCK)
    pins_of(lock)  # or it is refused before anything is made
    part = needed_part(lock, extras) if extras else lock.read_text("utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bundle-") as folder:
        whole = Path(folder) / out.name
        (whole / "wheels").mkdir(parents=True)
        write_whole(whole / LOCK, part)
        pins = pins_of(whole / LOCK)
        tell(f"gather {len(pins)} wheels")
        _gather(pins, whole / LOCK, wheels, whole / "wheels")
        write_own_wheel(whole / "wheels")
        tell(f"take out {described.version.text}")
        opened.pull(described.version.text, whole / "model")
        _document(whole)
        shutil.copyfile(install.__file__, whole / "install.py")
        write_whole(whole / install.FACTS, json.dumps(_facts(described, extras), indent=1) + "\n")
        files = sorted(path for path in whole.rglob("*") if path.is_file())
        sums = "".join(f"{sha256_of(path)}  {path.relative_to(whole).as_posix()}\n" for path in files)
        write_whole(whole / install.SUMS, sums)
        size_bytes = sum(path.stat().st_size for path in files)
        whole.rename(out)
    digest, count = sha256_of(out / install.SUMS), len(pins) + 1
    version = described.version
    return ShownBundle(out, version.text, version.digest, count, len(files) + 1, size_bytes, digest)


def pins_of(lock: Path) -> dict[str, str]:
    """Versions by name. Raises FileError for a file that is not there or pins nothing."""
    try:
        found = [PIN.match(line) for line in lock.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        hint = "name one by `--lock`: `pip freeze --exclude twofold` writes one of what is installed, "
        hint += "`pip-compile --extra …` one for `--extra`"
        raise FileError(f"`{lock}` cannot be read as a list of pins", hint=hint) from error
    pins = {plain(each[1]): each[2] for each in found if each is not None}
    if not pins:
        raise FileError(f"`{lock}` pins nothing", hint="write lines such as `numpy==2.3.5`")
    return pins


def hashes_of(lock: Path) -> dict[str, set[str]]:
    """SHA-256 by name, of a lock that has them; pip allows several, one for each kind of machine."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in lock.read_text("utf-8").splitlines():
        if (pin := PIN.match(line)) is not None:
            name = plain(pin[1])
        if name and not line.lstrip().startswith("#"):
            found.setdefault(name, set()).update(HASH.findall(line))
    return found


def wheel_for(name: str, version: str, folder: Path) -> Path | None:
    """The wheel of a pin; a build for other hardware (`2.13.0+cpu`) is one of a pin that names no build."""
    for path in sorted(folder.glob("*.whl")):
        project, _, rest = path.name.partition("-")
        built = rest.split("-")[0]
        if plain(project) == name and version in (built, built.partition("+")[0]):
            return path
    return None


def _gather(pins: dict[str, str], lock: Path, wheels: Path | None, target: Path) -> None:
    source = wheels
    if source is None:
        _download(lock, target)
        source = target
    missing, hashes = [], hashes_of(lock)
    for name, version in pins.items():
        found = wheel_for(name, version, source)
        if found is None:
            missing.append(f"{name}=={version}")
        elif hashes.get(name) and sha256_of(found).removeprefix("sha256:") not in hashes[name]:
            raise FileError(f"`{found}` is not the wheel that the lock names by its hash")
        elif source != target:
            shutil.copyfile(found, target / found.name)
    if missing:
        named = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        hint = "`pip download --only-binary :all: --no-deps -r LOCK -d FOLDER` fetches them"
        raise FileError(f"`{source}` holds no wheel of {named}", hint=hint)


def _download(lock: Path, target: Path) -> None:
    asked = ["download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *asked, "--only-binary", ":all:", "-r", str(lock), "-d", str(target)],
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_LIMIT_S,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        hint = "go online, or name a folder of wheels by `--wheels`"
        raise ValueRefusedError(f"the wheels were not downloaded: {why[:200]}", hint=hint)


def _checkout() -> Path:
    """The folder that this is run from, where it is a checkout."""
    return Path(twofold.__file__).resolve().parents[2]


def _document(whole: Path) -> None:
    """Documentation and examples of a checkout; of an installed package its description."""
    root = _checkout()
    if not (root / "pyproject.toml").is_file():
        told = distribution("twofold").read_text("METADATA") or ""
        write_whole(whole / "README.md", told.partition("\n\n")[2])
        return
    for name in DOCUMENTS:
        if (root / name).is_dir():
            shutil.copytree(root / name, whole / name, ignore=shutil.ignore_patterns(*NOT_DOCUMENTS))
        elif (root / name).is_file():
            shutil.copyfile(root / name, whole / name)


def _facts(described: Described, extras: Sequence[str]) -> dict[str, Any]:
    version = described.version
    return {
        "twofold": twofold.__version__,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": f"{sys.platform} {platform.machine()}",
        "extras": list(extras),
        "model": version.text,
        "digest": version.digest,
        "made_from": dict(described.stored.facts.get(MARKED, {})),
    }
