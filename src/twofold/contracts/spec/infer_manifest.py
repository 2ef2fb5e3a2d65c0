"""The script or the line behind a file that starts something, or is read by what starts.

A batch script, a task or a job starts a script that lies beside it; a configuration is read by one. Compose
files and manifests of Kubernetes hold an engine's line as words of a container. Ray Serve's are no lines.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from twofold.contracts.spec.command_line import COMMAND
from twofold.contracts.spec.infer_trainer import TRAINER
from twofold.contracts.spec.reader import read_text
from twofold.core import errors
from twofold.core.errors import Place

STARTERS = (".sbatch", ".yaml", ".yml", ".toml", ".json")
GIVE = "give the script that starts it, NAME.sh of `--target shell`, or the engine's line"
_SCRIPT = re.compile(r"([\w-]+\.sh)\b")
_FILLED = re.compile(r"(?<!\$)\$\((\w+)\)")
_ONE_MACHINE = re.compile(r"^# .*what one machine of \d+ × (\S+) holds$", re.M)
_OWN = ("--host", "--port")  # of a replica; what else differs makes two engines
_YAML_MOST = 300_000  # characters; a manifest of one pool has 20,000


def launched(path: Path, text: str) -> tuple[str, Path] | None:
    """A script's text and the file that it is of; None for what starts nothing and is read by no script.

    Raises InferenceSourceError where several are started, or one that is not there.
    """
    if path.suffix not in STARTERS or (path.suffix == ".json" and not text.startswith("{\n")):
        return None  # JSON on a line is a request
    if path.suffix in (".yaml", ".yml") and (line := _line_of(path, text)):
        return line, path
    code = re.sub(r"(?:^|\s)#.*$", "", text, flags=re.M)
    if COMMAND.search(code) or TRAINER.search(code):
        return None  # read as it is
    if re.search(r"^kind: Kustomization$", code, re.M):
        return None  # of all pools and runs
    named = dict.fromkeys(_SCRIPT.findall(code) if path.suffix != ".json" else ()) or _readers_of(path)
    if len(named) > 1:
        what = f"`{path.name}` starts {len(named)} scripts: {', '.join(list(named)[:4])}"
        raise errors.InferenceSourceError(what, place=Place(str(path), 1, 1), hint="give one of them")
    for name in named:
        script = path.parent / name
        if not script.is_file():
            what = f"`{path.name}` starts `{name}`, which is not beside it"
            raise errors.InferenceSourceError(what, place=Place(str(path), 1, 1), hint="give that script")
        return read_text(script), script
    if path.suffix == ".toml":
        # Alone it says all but where the weights are.
        return f"{text}\ntorchrun -m torchtitan.train --job.config_file {shlex.quote(path.name)}\n", path
    return None


def _readers_of(path: Path) -> dict[str, None]:
    """Scripts beside a file that name it."""
    found = dict[str, None]()
    for each in sorted(path.parent.glob("*.sh")):
        with suppress(errors.TwofoldError):  # one that cannot be read is not about it
            if re.search(rf"/{re.escape(path.name)}\b", read_text(each)):
                found[each.name] = None
    return found


def _line_of(path: Path, text: str) -> str:
    """The line that starts the engine of a manifest, below what its head says of a replica; "" without one.

    Raises InferenceSourceError for several that differ.
    """
    found: dict[str, str] = {}
    for container in _containers(text):
        words = _words_of(container)
        line = shlex.join(words)
        if COMMAND.search(line):
            found.setdefault(shlex.join(_shared(words)), _head(text, container) + line + "\n")
    if len(found) > 1:
        what = f"`{path.name}` starts {len(found)} engines that differ"
        raise errors.InferenceSourceError(what, place=Place(str(path), 1, 1), hint=GIVE)
    return next(iter(found.values()), "")


def _containers(text: str) -> Iterator[Mapping[str, Any]]:
    """All mappings that may be a container; nothing of what is no YAML."""
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text)) if len(text) <= _YAML_MOST else []
    except (YAMLError, ValueError, RecursionError):
        return
    left: list[Any] = documents
    seen: set[int] = set()  # an alias may name what it stands in
    while left:
        node = left.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            if "command" in node or "args" in node:
                yield node
            left += node.values()
        elif isinstance(node, list):
            left += node


def _words_of(container: Mapping[str, Any]) -> list[str]:
    """The words that it starts with, its own variables filled in as Kubernetes does."""
    told = container.get("env")
    known = {
        str(each.get("name")): _value(str(each.get("name")), str(each.get("value", "")))
        for each in (told if isinstance(told, list) else ())
        if isinstance(each, dict)
    }
    words: list[str] = []
    for key in ("entrypoint", "command", "args"):
        value = container.get(key) or []
        try:
            words += shlex.split(value) if isinstance(value, str) else map(str, value)
        except (ValueError, TypeError):
            return []
    filled = [_FILLED.sub(lambda use: known.get(use[1], use[0]), word) for word in words]
    return [word.replace("$$", "$") for word in filled]


def _value(name: str, value: str) -> str:
    """What a variable holds; a folder of the pod is none of this machine, and its name says more."""
    return f"${name}" if value.startswith("/") else value


def _shared(words: list[str]) -> list[str]:
    """Without what tells replicas of one pool apart."""
    return [
        word for at, word in enumerate(words) if word not in _OWN and (at == 0 or words[at - 1] not in _OWN)
    ]


def _head(text: str, container: Mapping[str, Any]) -> str:
    """The comments of the file; of Compose with the devices of a replica, in the words of a script's head."""
    comments = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("# "))
    machine = _ONE_MACHINE.search(text)
    size = _device_count(container)
    return comments + (
        f"# a replica: one of 1 replica, on {size} × {machine[1]}\n" if machine and size else ""
    )


def _device_count(container: Mapping[str, Any]) -> int:
    """Devices that Compose gives to a container; 1 on processors, of which it gives none."""
    ids = re.search(r"'device_ids': \[([^\]]*)\]", str(container.get("deploy")))
    seen = re.search(r"'HIP_VISIBLE_DEVICES': '([\d,]+)'", str(container.get("environment")))
    found = ids or seen
    return len(found[1].split(",")) if found else 1
