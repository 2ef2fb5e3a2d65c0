"""Behind every value that `shell` writes stands what set it: of the examples, and of each trainer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rendered import Files, texts, with_run
from twofold.contracts.results.plan import Plan
from twofold.rendering.trainers import TRAINERS

GOLDEN = Path(__file__).parent / "golden"
OF_SCRIPTS = re.compile(r"  \S|export ")  # an option of the array, a variable
SECTION = re.compile(r"\[\w+\]|[\w-]+:")  # of TOML; a key of YAML whose values stand below
# What its owner sets is in no plan; where a script's files lie is where the script lies.
OWNERS = re.compile(r'"\$(\{(?!MEGATRON)\w+:[-?]|WEIGHTS_)|^export FILES=')


def bare(files: Files) -> Iterator[str]:
    """Values that nothing is said of, by file."""
    for path, text in files.items():
        if path.endswith(".json"):
            (script,) = [each for other, each in files.items() if other.endswith(".sh") and path in each]
            said = re.findall(rf"^# {re.escape(path)}: (\w+) is \S", script, re.M)
            yield from (f"{path}: {name}" for name in json.loads(text).keys() - set(said))
        for line in text.splitlines() if not path.endswith(".json") else ():
            if path.endswith(".sh"):
                is_value = OF_SCRIPTS.match(line) and not OWNERS.search(line)
            else:
                is_value = line.strip() and not line.startswith("#") and not SECTION.fullmatch(line.strip())
            if is_value and not re.search(r"\s# \S", line):
                yield f"{path}: {line}"


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("*/shell")), ids=lambda each: each.parent.name)
def test_every_value_of_an_example_says_what_set_it(folder: Path) -> None:
    files = {each.name: each.read_text("utf-8") for each in folder.iterdir()}
    assert files
    assert list(bare(files)) == []


@pytest.mark.parametrize("framework", TRAINERS)
@pytest.mark.parametrize("name", ["assistant", "moe", "finetune"])
@pytest.mark.parametrize(
    "layout", [{}, {"pp": 2, "vpp": 2, "recompute": "selective"}, {"zero_stage": 3, "tp": 2, "cp": 2}]
)
def test_every_value_of_a_training_software_says_what_set_it(
    framework: str, name: str, layout: dict[str, object], examples: dict[str, Plan]
) -> None:
    plan = with_run(examples[name], framework=framework, layout=layout)
    files = {path: text for path, text in texts(plan, "shell").items() if "serve" not in path}
    assert list(bare(files)) == []


def test_a_value_that_says_nothing_is_found(examples: dict[str, Plan]) -> None:
    files = dict(texts(examples["finetune"], "shell"))
    script, toml = files["finetune.sh"], files["finetune.toml"]
    files["finetune.sh"] = re.sub(r"(--nnodes 1) +#.*", r"\1", script)
    files["finetune.toml"] = re.sub(r"(seq_len = \d+) +#.*", r"\1", toml)
    assert [each.split()[1] for each in bare(files)] == ["--nnodes", "seq_len"]
