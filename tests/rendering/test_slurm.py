"""Batch scripts: what Slurm is asked for, and what happens before the time limit."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rendered import Files, texts, with_run
from twofold.contracts.results.plan import Plan

DIRECTIVE = re.compile(r"#SBATCH --([a-z-]+)(?:=(\S+))?")


def directives(text: str) -> dict[str, str]:
    return dict(DIRECTIVE.findall(text))


def run_job(files: Files) -> str:
    return next(text for path, text in files.items() if path.endswith(".sbatch") and "serve" not in path)


def test_a_run_is_one_job_of_all_its_nodes(files_of: Callable[[str, str], Files]) -> None:
    said = directives(run_job(files_of("assistant", "slurm")))
    assert (said["nodes"], said["gpus-per-node"], said["ntasks-per-node"]) == ("64", "8", "1")
    assert "requeue" in said
    assert said["switches"].startswith("4@")


@pytest.mark.parametrize("name", ["assistant", "finetune", "laptop"])
def test_no_run_is_told_to_save_before_the_upper_end_of_its_range(
    name: str, examples: dict[str, Plan]
) -> None:
    """Slurm may send a signal a minute early: a run of a minute was told at once, and never got on."""
    plan = examples[name]
    said = directives(run_job(texts(plan, "slurm")))
    days, hours, minutes, _ = (int(each) for each in re.split("[-:]", said["time"]))
    told_s = ((days * 24 + hours) * 60 + minutes) * 60 - int(said["signal"].rpartition("@")[2])
    assert 0 <= told_s - 60 - plan.training[0].run.total_s.high < 60


@pytest.mark.parametrize(("write_s", "notice"), [(10.0, "B:USR1@60"), (300.0, "B:USR1@600")])
def test_a_run_is_told_early_enough_to_save(write_s: float, notice: str, examples: dict[str, Plan]) -> None:
    run = examples["assistant"].training[0].run
    slow = replace(run, checkpoints=replace(run.checkpoints, write_s=write_s))
    text = run_job(texts(with_run(examples["assistant"], run=slow), "slurm"))
    assert directives(text)["signal"] == notice
    assert ("lost: a checkpoint of" in text) == (write_s > 30.0)


def test_replicas_are_tasks_of_an_array(files_of: Callable[[str, str], Files]) -> None:
    files = files_of("moe", "slurm")
    said = directives(next(text for path, text in files.items() if path == "moe-serve.sbatch"))
    assert (said["array"], said["gpus-per-node"], said["nodes"]) == ("0-11", "8", "1")


def test_replicas_that_share_a_node_have_ports_of_their_own_and_are_listed_with_them(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    """All listened on port 8000, so that the second on a node ended at once."""
    (tmp_path / "srun").write_text("#!/bin/bash\necho srun $*\n", "utf-8")
    queued = "#!/bin/bash\n[[ \"$*\" == *--name=$POOL* ]] && printf 'n1 0\\nn1 1\\nn2 2\\n'\n"
    (tmp_path / "squeue").write_text(queued, "utf-8")
    for name in ("srun", "squeue"):
        (tmp_path / name).chmod(0o755)
    taken: list[int] = []
    files = texts(examples["assistant"], "slurm")
    jobs = {path: text for path, text in files.items() if path.endswith(".sbatch") and "serve" in path}
    assert len(jobs) == 3
    for path, text in jobs.items():
        pool = path.removesuffix(".sbatch")
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FILES": ".", "POOL": pool}
        environment["SLURM_CPUS_PER_TASK"] = "9"
        last = int(directives(text)["array"].partition("-")[2])
        for task in range(last + 1):
            more = environment | {"SLURM_ARRAY_TASK_ID": str(task)}
            done = subprocess.run(["bash", "-c", text], env=more, check=True, capture_output=True, text=True)
            assert f"{pool}.sh --port " in done.stdout
            taken.append(int(done.stdout.split()[-1]))
        line = next(each[1:] for each in text.splitlines() if "squeue" in each)
        done = subprocess.run(
            ["bash", "-c", line], env=environment, check=True, capture_output=True, text=True
        )
        first = taken[-1] - last
        assert done.stdout.split() == [
            f"http://n1:{first}",
            f"http://n1:{first + 1}",
            f"http://n2:{first + 2}",
        ]
    assert sorted(taken) == [*range(8000, 8000 + len(taken))]


def test_what_a_job_starts_are_the_scripts_of_the_shell(files_of: Callable[[str, str], Files]) -> None:
    shell, slurm = files_of("portfolio", "shell"), files_of("portfolio", "slurm")
    assert {path: slurm[path] for path in shell} == shell
    for path in shell:
        if path.endswith(".sh"):
            assert f"$FILES/{path}" in slurm[path.replace(".sh", ".sbatch")]


def test_the_signal_makes_the_trainer_save_and_the_job_wait_again(
    files_of: Callable[[str, str], Files], tmp_path: Path
) -> None:
    """The script as it is, with programs of its own in the place of Slurm's."""
    files = files_of("finetune", "slurm")
    log = tmp_path / "log"
    fakes = {
        # Slurm signals long after the script has said what it does then.
        "srun": f"trap 'echo saved >> {log}; exit 0' TERM; echo $$ > {log}.srun; "
        "until (( 0x$(sed -n 's/^SigCgt:\\t//p' /proc/$PPID/status) & 512 )); do sleep 0.01; done; "
        "kill -USR1 $PPID; for _ in $(seq 100); do sleep 0.05; done",
        "scancel": f'echo "scancel $*" >> {log}; kill -TERM "$(cat {log}.srun)"',
        "scontrol": f'echo "scontrol $*" >> {log}',
    }
    for name, body in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text(files["finetune.sbatch"], "utf-8")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]"}
    done = subprocess.run(["bash", str(tmp_path / "job")], env=environment, check=False, timeout=30)
    said = [line for line in log.read_text("utf-8").splitlines() if "show hostnames" not in line]
    assert said == ["scancel --signal=TERM 7", "saved", "scontrol requeue 7"]
    assert done.returncode != 0  # it has not ended by itself
