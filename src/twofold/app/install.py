"""Checks a bundle and installs it without a network: `python3 install.py FOLDER`, or `--check` alone.

It stands in the bundle by itself and needs Python alone. What it checks with came with the bundle: compare
the digest that it prints first with the one that whoever made the bundle gave you another way.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

SUMS = "SHA256SUMS"
FACTS = "bundle.json"
READ_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Of a file, as 64 digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def wrong_files(bundle: Path) -> list[str]:
    """What is missing, changed, or more than the list of digests says."""
    found = []
    listed = {}
    for line in (bundle / SUMS).read_text("utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    for name, digest in listed.items():
        path = bundle / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif path.is_symlink() or sha256_of(path) != digest:
            found.append(f"{name} was changed")
    for path in sorted(bundle.rglob("*")):
        name = path.relative_to(bundle).as_posix()
        if (path.is_file() or path.is_symlink()) and name not in listed and name != SUMS:
            found.append(f"{name} is not of the bundle")
    return found


def unfit(facts: dict[str, str]) -> str:
    """Why its wheels are not for this machine; "": they are."""
    here = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": f"{sys.platform} {platform.machine()}",
    }
    other = [f"{name} {facts[name]}, here {here[name]}" for name in here if facts[name] != here[name]]
    return f"it is for {', '.join(other)}" if other else ""


def install(bundle: Path, folder: Path, facts: dict[str, str]) -> None:
    """A virtual environment with what the bundle holds. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    offline = [
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-cache-dir",
        "--find-links",
        str(bundle / "wheels"),
    ]
    subprocess.run([*pip, *offline, "-r", str(bundle / "requirements.lock")], check=True)
    subprocess.run([*pip, *offline, f"twofold=={facts['twofold']}"], check=True)
    subprocess.run([*pip, "check"], check=True)


def main() -> int:
    """0: checked, and installed where a folder is named; 2: not what was bundled, or not for this machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="the new virtual environment")
    parser.add_argument("--check", action="store_true", help="check the files, and install nothing")
    asked = parser.parse_args()
    bundle = Path(__file__).resolve().parent
    if not (bundle / SUMS).is_file():
        print(f"error: {SUMS} is missing", file=sys.stderr)
        return 2
    print(f"bundle {sha256_of(bundle / SUMS)}")
    for each in (wrong := wrong_files(bundle)):
        print(f"error: {each}", file=sys.stderr)
    if wrong:
        return 2
    facts = json.loads((bundle / FACTS).read_text("utf-8"))
    if asked.check or asked.folder is None:
        print("every file is as bundled; name a folder to install it there")
        return 0
    if why := unfit(facts):
        print(f"error: {why}", file=sys.stderr)
        return 2
    if asked.folder.exists():
        print(f"error: {asked.folder} exists", file=sys.stderr)
        return 2
    try:
        install(bundle, asked.folder, facts)
    except subprocess.CalledProcessError:
        print(f"error: not wholly installed in {asked.folder}: why stands above", file=sys.stderr)
        return 2
    print(f"installed: {asked.folder}/bin/twofold plan {bundle}/examples/assistant")
    return 0


if __name__ == "__main__":
    sys.exit(main())
