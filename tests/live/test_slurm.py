"""Batch scripts on a Slurm of this machine: four nodes beside each other, with daemons of their own.

Needs Debian's slurmctld, slurmd and munge, and to be root, as whom the daemons start jobs.
"""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rendered import after, texts, with_run
from twofold.contracts.results.plan import Plan
from twofold.live.processes import free_port, stop_all
from twofold.live.training.training_record import read_events, read_steps

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("TWOFOLD_PARSERS"), reason="a Slurm of its own, minutes: set TWOFOLD_PARSERS=1"
    ),
    pytest.mark.skipif(
        bool(MISSING), reason=f"no {', '.join(MISSING)}: apt-get install slurmctld slurmd munge"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="the daemons of Slurm want root"),
]
ROOT = Path(__file__).parents[2]
NODES = 4
LARGE_NODES = 256  # that only stand in the configuration: powered down, to be started when a job wants them
REQUEUE_S = 5  # before a job that was queued again may start: as long as its credential lives
PATIENCE_S = 90.0
CONFIGURATION = """\
ClusterName=rendered
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
AuthInfo=socket={folder}/munge.sock,cred_expire={requeue_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
{nodes}
NodeName=large[1-{large}] CPUs=64 Gres=gpu:8 State=CLOUD
PartitionName=here Nodes=n[0-3] Default=YES MaxTime=INFINITE State=UP
PartitionName=large Nodes=large[1-{large}] MaxTime=INFINITE State=UP
"""


class Slurm:
    """Daemons in a folder, and what asks them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemons = folder, list[subprocess.Popen[bytes]]()
        folder.chmod(0o755)
        (folder / "state").mkdir()
        os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # an accelerator that is none
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName=n{each} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 Gres=gpu:1"
            for each in range(NODES)
        ]
        (folder / "gres.conf").write_text(
            f"NodeName=n[0-{NODES - 1}] Name=gpu File={folder}/device\n"
            f"NodeName=large[1-{LARGE_NODES}] Name=gpu Count=8\n"
        )
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host, controller=free_port(), folder=folder, requeue_s=REQUEUE_S,
                nodes="\n".join(nodes), large=LARGE_NODES,
            )
        )  # fmt: skip

    def start(self) -> None:
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        self._daemon(
            "munged", "--foreground", "--force", *(f"--{k}={self.folder / v}" for k, v in files.items())
        )
        self.await_(lambda: (self.folder / "munge.sock").exists())
        self._daemon("slurmctld", "-D")
        for number in range(NODES):
            self._daemon("slurmd", "-D", "-N", f"n{number}")
        self.await_(lambda: self.ask("sinfo", "-h", "-p", "here", "-o", "%t %D").strip() == f"idle {NODES}")

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"{command[0]}-{len(self.daemons)}.out").open("ab") as log:
            self.daemons.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=self.environment(), start_new_session=True
                )
            )

    def environment(self) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": programs, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, **told: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            env=self.environment() | told,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, *command: str, **told: str) -> str:
        done = self.run(*command, **told)
        return done.stdout if done.returncode == 0 else ""

    def submit(self, script: Path, *options: str, **told: str) -> str:
        """The job's number."""
        done = self.run("sbatch", "--parsable", *options, str(script), **told)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        return self.ask("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").strip()

    def restarts(self, job: str) -> int:
        found = re.search(r"Restarts=(\d+)", self.ask("scontrol", "show", "job", job))
        return int(found[1]) if found else 0

    def await_(self, true: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until_s, "\n".join(
                path.read_text("utf-8", "replace")[-2000:] for path in self.folder.glob("slurm-*.out")
            )
            time.sleep(0.2)

    def stop(self) -> None:
        self.ask("scancel", "--user=root", "--signal=KILL", "--full")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("name", ["assistant", "moe", "finetune", "portfolio", "laptop"])
def test_slurm_would_start_every_job_of_an_example(
    name: str, examples: dict[str, Plan], slurm: Slurm, tmp_path: Path
) -> None:
    jobs = {path: text for path, text in texts(examples[name], "slurm").items() if path.endswith(".sbatch")}
    assert jobs
    for path, text in jobs.items():
        (tmp_path / path).write_text(text, "utf-8")
        partition = "large" if "--gpus-per-node" in text else "here"
        tried = slurm.run("sbatch", "--test-only", "--partition", partition, str(tmp_path / path))
        assert tried.returncode == 0, tried.stderr
        assert "to start at" in tried.stderr


def test_our_trainer_goes_on_from_its_checkpoint_after_the_notice(
    examples: dict[str, Plan], slurm: Slurm, tmp_path: Path
) -> None:
    """The laptop's job as it is but for more frequent checkpoints; its notice comes early, by `scancel`."""
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    files = tmp_path / "files"
    files.mkdir()
    for path, text in texts(examples["laptop"], "slurm").items():
        (files / path).write_text(text, "utf-8")
        (files / path).chmod(0o755)
    order = json.loads((files / "laptop-tiny.job.json").read_text("utf-8"))
    assert order["steps"] == 110
    (files / "laptop-tiny.job.json").write_text(
        json.dumps(order | {"steps": 24, "checkpoint_every_steps": 4})
    )
    config, runs = ROOT / "examples" / "laptop" / "config.json", tmp_path / "runs"
    told = {"FILES": str(files), "CONFIG": str(config), "RUNS": str(runs), "HF_HUB_OFFLINE": "1"}
    run = runs / "laptop-tiny"
    try:
        job = slurm.submit(files / "laptop-tiny.sbatch", **told)
        slurm.await_(lambda: len(read_steps(run)) >= 7)
        slurm.ask("scancel", "--batch", "--signal=USR1", job)
        slurm.await_(lambda: slurm.restarts(job) == 1)
        assert not (run / "hf").exists()
        slurm.await_(lambda: slurm.state(job) == "COMPLETED")
    finally:
        stop_all(runs / ".state")
    before, resumed = ([line for line in read_steps(run) if line.launch == launch] for launch in (1, 2))
    assert resumed[0].step == before[-1].step + 1 > 7  # from where it saved when it was told
    assert resumed[-1].step == 24
    assert len(read_events(run, "exported")) == 1


TORCHRUN = """\
#!/bin/bash
# A node of a run: works until it is told to save; where it has saved before it waits for the others and ends.
rank=$NODE_RANK
trap 'touch "$CHECKPOINTS/saved-$rank"; exit 0' TERM
again=first; [ -e "$CHECKPOINTS/saved-$rank" ] && again=again
echo "$@" > "$CHECKPOINTS/$again-$rank"
for _ in $(seq 600); do
  [ "$(ls "$CHECKPOINTS" | grep -c "^again-")" = 4 ] && exit 0
  sleep 0.2
done
exit 1
"""


def test_a_run_on_four_nodes_starts_on_all_or_none_saves_and_is_queued_again(
    examples: dict[str, Plan], slurm: Slurm, tmp_path: Path
) -> None:
    """By a stand-in for `torchrun`, which takes four nodes on one host for one and the same."""
    run = examples["finetune"].training[0]
    machine = replace(run.machine, node_count=NODES, accelerators_per_node=1, accelerator_count=NODES)
    plan = with_run(examples["finetune"], framework="deepspeed", machine=machine, layout={"dp": NODES})
    for path, text in texts(plan, "slurm").items():
        (tmp_path / path).write_text(text, "utf-8")
        (tmp_path / path).chmod(0o755)
    (tmp_path / "torchrun").write_text(TORCHRUN, "utf-8")
    (tmp_path / "torchrun").chmod(0o755)
    told = dict.fromkeys(("DATA", "TOKENIZER", "CONFIG", "ROTARY_BASE"), str(tmp_path))
    told |= {"FILES": str(tmp_path), "TRAIN_SCRIPT": "train.py", "CHECKPOINTS": str(tmp_path)}
    told |= {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    job = slurm.submit(tmp_path / "finetune.sbatch", **told)
    time.sleep(3.0)
    assert slurm.state(job) == "PENDING"  # three nodes are free: none of them is taken
    slurm.ask("scontrol", "update", "nodename=n3", "state=resume")
    names = [str(rank) for rank in range(NODES)]
    slurm.await_(lambda: all((tmp_path / f"first-{each}").exists() for each in names))
    told_to = [(tmp_path / f"first-{each}").read_text().split() for each in names]
    assert [after(words, "--node-rank") for words in told_to] == names
    assert {(after(words, "--nnodes"), after(words, "--master-addr")) for words in told_to} == {("4", "n0")}
    slurm.ask("scancel", "--batch", "--signal=USR1", job)
    slurm.await_(lambda: slurm.restarts(job) == 1)
    assert all((tmp_path / f"saved-{each}").exists() for each in names)
    slurm.await_(lambda: slurm.state(job) == "COMPLETED")
    assert all((tmp_path / f"again-{each}").exists() for each in names)
