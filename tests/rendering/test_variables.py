"""A script that a manifest starts finds all that it asks for: set there, or said to be needed."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.rendered import Files, texts
from twofold.contracts.results.plan import Plan

STARTED = re.compile(r"([\w.-]+\.sh)\b")
NEEDED = re.compile(r"needs in the config map `([\w-]+)-settings`: (\w+), ")


def mappings(node: Any) -> Iterator[dict[str, Any]]:
    """All mappings of a document."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from mappings(each)


def started(files: Files) -> Iterator[tuple[str, dict[str, str]]]:
    """Each script that a file of YAML starts, with the variables that it sets there."""
    needed = [each for text in files.values() for each in NEEDED.findall(text)]
    for path, text in files.items():
        if not path.endswith(".yaml") or path == "kustomization.yaml":
            continue
        for document in YAML(typ="safe").load_all(text):
            found = [each for each in mappings(document) if {"command", "env"} <= each.keys()]
            words = [word for each in found for word in each["command"] if word.endswith(".sh")]
            words += STARTED.findall(str(document.get("spec", {}).get("entrypoint", "")))
            words += STARTED.findall(str(document.get("run", "")))
            found = [each for each in mappings(document) if "env" in each]
            variables = {each["name"]: str(each.get("value", "0")) for one in found for each in one["env"]}
            variables |= {name: value or "given" for name, value in document.get("envs", {}).items()}
            for script in {Path(word).name for word in words}:
                yield (
                    script,
                    variables | {name: "given" for run, name in needed if run == script.removesuffix(".sh")},
                )


@pytest.mark.parametrize("target", ["kubernetes", "ray", "skypilot"])
@pytest.mark.parametrize("name", ["assistant", "moe", "finetune", "portfolio", "laptop"])
def test_a_script_gets_as_far_as_its_program(
    name: str, target: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    files = texts(examples[name], target)
    scripts = dict(started(files))
    assert scripts
    for script, variables in scripts.items():
        program = re.search(r"^exec (\S+)", files[script], re.M)
        assert program is not None
        stand_in = tmp_path / "bin" / Path(program[1]).name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text("#!/bin/sh\nexit 0\n")
        stand_in.chmod(0o755)
        (tmp_path / script).write_text(files[script])
        done = subprocess.run(
            ["bash", str(tmp_path / script)],
            env={"PATH": f"{stand_in.parent}:{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (script, sorted(variables), done.stderr)
