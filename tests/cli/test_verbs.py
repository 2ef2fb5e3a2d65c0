"""What each verb prints when all is well, and the laws that its screens and files obey."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_spec import SMALL
from twofold.cli.verbs import VERBS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A spec that is planned in a moment, in the working directory."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_help_lists_every_verb_in_its_group(run, golden) -> None:
    done = run("twofold --help")
    assert done.code == 0
    assert all(verb in done.out for verb in VERBS)
    golden("help", done.transcript)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_and_speaks_json(verb, run, golden) -> None:
    done = run(f"twofold {verb} --help")
    assert done.code == 0
    assert all(len(line) <= 100 for line in done.out.splitlines())
    golden(f"help-{verb}", done.transcript)
    leaves = {
        "estimate": ("collective", "compute", "roofline", "serve", "train"),
        "measure": ("device", "serve", "train", "import"),
        "keys": ("add", "list", "revoke"),
        "registry": tuple(VERBS["registry"].questions),
        "jobs": ("submit", "list", "cancel", "logs"),
    }
    for leaf in leaves.get(verb, ("",)):
        assert "--json" in run(f"twofold {verb} {leaf} --help").out


@pytest.mark.parametrize("line", ["twofold", "twofold estimate"])
def test_no_words_ask_for_help(line, run) -> None:
    done = run(line)
    assert (done.code, done.err) == (0, "")
    assert done.out == run(f"{line} --help").out


def test_the_version_is_told(run) -> None:
    done = run("twofold --version")
    assert (done.code, done.out) == (0, "twofold 0.1.0\n")


@pytest.mark.parametrize("kind", ["chat", "train", "both"])
def test_a_starter_passes_the_check(kind, run, golden) -> None:
    written = run(f"twofold init --kind {kind}")
    checked = run("twofold check twofold.yaml")
    assert (written.code, checked.code) == (0, 0)
    golden(f"init-{kind}", written.transcript + checked.transcript)


def test_a_spec_inferred_from_a_command_line_marks_what_is_assumed(run, golden) -> None:
    line = (
        "twofold init --out - --from 'vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4'"
    )
    done = run(line)
    assert done.code == 0
    assert "# assumed" in done.out
    golden("init-from-vllm", done.transcript)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()))
def test_every_example_passes_the_check(name, run) -> None:
    assert run(f"twofold check {EXAMPLES / name}").code == 0


@pytest.mark.usefixtures("small")
def test_check_is_data_with_json(run) -> None:
    data = json.loads(run("twofold check small.yaml --json").out)
    assert data["schema"] == "twofold/check/1"
    assert data["training"] == ["finetune"]
    assert any(default["path"] == "training.finetune.optimizer" for default in data["defaults"])


def test_the_catalogue_is_listed_filtered_and_data(run, golden) -> None:
    listed = run("twofold catalog")
    shown = run("twofold catalog accelerators --where 'name ~ H200'")
    fabrics = run("twofold catalog fabrics --columns name,efficiency")
    assert [listed.code, shown.code, fabrics.code] == [0, 0, 0]
    golden("catalog", shown.transcript + fabrics.transcript)
    data = json.loads(run("twofold catalog accelerators --where 'name ~ H200' --json").out)
    assert data["schema"] == "twofold/catalog/1"
    assert data["units"]["mem_gb"] == "GB"
    assert {"source", "licence", "confidence"} <= data["rows"][0].keys()


def test_partitions_are_listed_and_placed(run, golden) -> None:
    done = run("twofold catalog partitions H100 --fit '3x 1g.10gb + 4g.40gb'")
    assert done.code == 0
    golden("catalog-partitions", done.transcript)
    data = json.loads(run("twofold catalog partitions MI300X --json").out)
    assert data["schema"] == "twofold/partitions/1"
    assert "CPX" in [profile["profile"] for profile in data["profiles"]]


@pytest.mark.usefixtures("small")
def test_a_plan_is_one_screen_of_100_columns(run, golden) -> None:
    done = run("twofold plan small.yaml")
    assert (done.code, done.err) == (0, "")
    assert all(len(line) <= 100 for line in done.out.splitlines())
    golden("plan", done.transcript)


def test_a_plan_with_a_confidence_says_what_holds_with_it(run, small: Path, golden) -> None:
    """The same spec as in `plan`, its latencies nearer to what a lone request gets."""
    near = SMALL.replace("ttft_p95: 1 s, tpot_p95: 50 ms", "ttft_p95: 60 ms, tpot_p95: 9 ms")
    small.write_text(f"{near}confidence: 80 %\n")
    done = run("twofold plan small.yaml")
    assert (done.code, done.err) == (0, "")
    assert " sure of 80 % asked" in done.out and " ~ " in done.out
    assert all(len(line) <= 100 for line in done.out.splitlines())
    golden("plan-confidence", done.transcript)


@pytest.mark.usefixtures("small")
def test_details_and_defaults_are_added_below_the_screen(run, golden) -> None:
    plain, full = run("twofold plan small.yaml"), run("twofold plan small.yaml --full")
    done = run("twofold plan small.yaml --details --show-defaults")
    assert done.out.startswith(full.out) and full.out.startswith(plain.out)
    for section in ("TRAINING", "SERVING", "TWO HALVES", "INSTEAD", "MONEY", "WHY NOT", "NUMBERS"):
        assert f"\n{section} " in full.out and f"\n{section} " not in plain.out, section
    assert "\nBUILDING " in done.out and "\nBUILDING " not in full.out  # of rented machines on request
    assert all(len(line) <= 100 for line in done.out.splitlines())
    golden("plan-details", done.transcript)


@pytest.mark.usefixtures("small", "anew")
def test_the_same_spec_gives_the_same_bytes(run) -> None:  # INV-5
    first, second = run("twofold plan small.yaml --json"), run("twofold plan small.yaml --json")
    assert first.out == second.out
    assert json.loads(first.out)["schema"] == "twofold/plan/1"


def test_a_plan_is_kept_explained_and_compared(run, small, golden) -> None:
    done = [
        run("twofold plan small.yaml --out plan.json"),
        run("twofold explain plan.json training.finetune.step_s"),
        run("twofold explain plan.json training.finetune.layout"),
        run("twofold diff plan.json plan.json"),
    ]
    small.write_text(SMALL.replace("tokens: 1 Gtok", "tokens: 2 Gtok"))
    done += [run("twofold plan small.yaml --out later.json"), run("twofold diff plan.json later.json")]
    assert [one.code for one in done] == [0, 0, 0, 0, 0, 4]
    assert "training.finetune\n" in done[-1].out and "\n    tokens " in done[-1].out
    golden("explain-and-diff", "".join(one.transcript for one in (done[1], done[2], done[3])))
    changes = json.loads(run("twofold diff plan.json later.json --json").out)
    assert changes["schema"] == "twofold/diff/1"
    (tokens,) = [one for one in changes["changes"] if one["path"] == "training.finetune.tokens"]
    assert (tokens["old"], tokens["new"], tokens["relative_change_fraction"]) == (1e9, 2e9, 1.0)


@pytest.mark.usefixtures("small")
def test_an_unknown_path_of_a_plan_is_refused_with_what_is_there(run, golden) -> None:
    run("twofold plan small.yaml --out plan.json")
    done = run("twofold explain plan.json training.finetune.step")
    assert done.code == 2
    golden("explain-unknown-path", done.transcript)


def test_a_folder_with_a_spec_is_a_spec(run, small) -> None:
    Path("folder").mkdir()
    shutil.copy(small, "folder/twofold.yaml")
    assert run("twofold plan folder --json").out == run("twofold plan small.yaml --json").out


def test_predict_writes_every_row_and_counts_them(run, golden) -> None:
    header = "id,model,gpu,gpus_total,framework,precision_weights,tp,isl_mean,osl_mean,concurrency"
    rows = ["1,llama-3.1-70b,h200,4,vllm,fp8,4,1000,200,16", "2,no-such-model,h200,4,vllm,fp8,4,1000,200,16"]
    Path("rows.csv").write_text("\n".join([header, *rows]) + "\n")
    done = run("twofold predict inference --in rows.csv --out out.csv")
    assert (done.code, done.err) == (0, "")
    assert len(Path("out.csv").read_text().splitlines()) == 3
    golden("predict", done.transcript)
    assert run("twofold predict inference --in rows.csv --out out.csv").code == 2
    data = json.loads(run("twofold predict inference --in rows.csv --out out.csv --force --json").out)
    assert data["schema"] == "twofold/predict/1"
    assert data["row_count"] == 2


@pytest.mark.parametrize("line", ["check small.yaml", "catalog fabrics", "--help"])
def test_what_needs_no_arrays_does_not_load_them(line: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    program = (
        f"import sys; from twofold.cli import main; main({line.split()!r}); sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)


def test_a_plan_shows_pictures_of_text_where_they_are_asked_for(run) -> None:
    spec = Path(__file__).parents[1] / "requirements" / "specs" / "chat.yaml"
    Path("spec.yaml").write_text(spec.read_text("utf-8"), "utf-8")
    plain, drawn = (run(f"twofold plan spec.yaml{flag}") for flag in ("", " --chart"))
    assert (plain.code, drawn.code) == (0, 0), plain.err
    assert "█" in drawn.out and "█" not in plain.out
    assert all(len(line) <= 100 for line in drawn.out.splitlines())
