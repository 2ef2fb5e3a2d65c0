"""The target `slurm`: a batch script for each run, and one whose array tasks are the replicas of a pool.

Slurm gives all nodes of a job at once or none. Before the time limit it tells the script, which tells the
trainer to save, and queues the job again. What one cluster has of its own stands on `sbatch`'s line:
`--partition`, `--account`. Source: the manual of sbatch, 24.05; what follows `#` on its lines is a comment.
"""

from collections.abc import Sequence
from math import ceil

from twofold.core.quantity import DAY_S
from twofold.rendering.commands import Option, commented
from twofold.rendering.devices import is_processor
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.hosts import share_of, unknown_share
from twofold.rendering.records import FIRST_PORT, ServedPool, TrainedRun
from twofold.rendering.shell import shell_files
from twofold.rendering.slices import made_before, slice_of

SAVE_RATIO = 2.0  # of a checkpoint's write time, that a run is told before it is ended
LEAST_NOTICE_S = 60.0
EARLY_S = 60.0  # that Slurm may send a signal before its time
SWITCH_WAIT = "12:00:00"  # that a job waits for nodes of one leaf switch
LEAF_NODES = 16  # a job of no more nodes finds room below one
TORCHRUN_WAITS_S = 30.0  # for its ranks, between telling them and ending them
WHOLE_NODES = (
    Option("--exclusive", "", "all processors of a node"),
    Option("--mem", "0", "all memory of a node"),
)
PORT_TOLD = ' --port "$PORT"'
FOLDER = 'export FILES="${FILES:-${SLURM_SUBMIT_DIR:-.}}"'
# The first node's name is an address for all others; a task knows its node by SLURM_NODEID.
FIRST_NODE = 'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"; export MASTER_ADDR'
# By scancel, which tells the tasks: srun that is told to end kills them instead.
SAVED_AND_QUEUED = (
    "step=$!",
    """save() { scancel --signal=TERM "$SLURM_JOB_ID"; wait "$step" || true; """
    """scontrol requeue "$SLURM_JOB_ID"; }""",
    "trap save USR1",
    'wait "$step"',
)


def slurm_files(given: Given) -> tuple[RenderedFile, ...]:
    """The scripts of the target `shell`, and for each pool and each run the batch script that starts it."""
    pools = [_serving_job(pool, given) for pool in given.pools]
    return (*shell_files(given), *pools, *(_training_job(run, given) for run in given.runs))


def _training_job(run: TrainedRun, given: Given) -> RenderedFile:
    write_s = run.run.run.checkpoints.write_s
    late = f"a checkpoint of {write_s:.0f} s at the time limit: torchrun gives {TORCHRUN_WAITS_S:.0f} s"
    lost = [late] if write_s > TORCHRUN_WAITS_S and not run.is_own else []
    lines = [
        "#!/usr/bin/env bash",
        *_directives(_run_options(run, given)),
        *head(run.title, given.digest, [*lost, *made_before(run.run.machine.accelerator, given)]),
        "set -euo pipefail",
        FOLDER,
        FIRST_NODE,
        f"srun --kill-on-bad-exit=1 --cpu-bind=none "
        f"""bash -c 'NODE_RANK="$SLURM_NODEID" exec "$FILES/{run.name}.sh"' &""",
        *SAVED_AND_QUEUED,
    ]
    return RenderedFile(f"{run.name}.sbatch", "\n".join(lines) + "\n", executable=True)


def _serving_job(pool: ServedPool, given: Given) -> RenderedFile:
    """Each replica is a task of an array, with a port of its own: several may share a node."""
    first = FIRST_PORT + sum(each.pool.replica_count for each in given.pools[: given.pools.index(pool)])
    lost = ["one address for all replicas: put a gateway before the addresses below"]
    if pool.role and pool.pool.replica.accelerator_count < pool.service.machine.accelerators_per_node:
        lost.append("ports on which caches move: two workers of a kind on a node need one each")
    lost += [*made_before(pool.service.machine.accelerator, given), *_unasked(pool, given)]
    if pool.nodes_per_replica > 1:
        lost.append(f"the {pool.nodes_per_replica} nodes of a replica: join them as its engine says")
    lines = [
        "#!/usr/bin/env bash",
        *_directives(_pool_options(pool, given)),
        *head(pool.title, given.digest, lost),
        "# The addresses of the replicas that run, wherever their tasks are:",
        f"#   {_listed(pool, first)}",
        "set -euo pipefail",
        FOLDER,
        f'PORT="$(({first} + SLURM_ARRAY_TASK_ID))"; export PORT  # one for each replica',
        f'exec srun --ntasks=1 {_bound(pool, given)} "$FILES/{pool.name}.sh"'
        + ("" if pool.is_own else PORT_TOLD),
    ]
    return RenderedFile(f"{pool.name}.sbatch", "\n".join(lines) + "\n", executable=True)


def _listed(pool: ServedPool, first_port: int) -> str:
    """Where replicas are, by Slurm itself: a task that was queued again is somewhere else."""
    queued = f"squeue --me --name={pool.name} --states=RUNNING --array --noheader --format='%B %K'"
    return f"""{queued} | awk '{{print "http://" $1 ":" {first_port} + $2}}'"""


def _run_options(run: TrainedRun, given: Given) -> list[Option]:
    machine, at = run.run.machine, f"{run.at}.machine"
    per_node, nodes = machine.accelerators_per_node, machine.node_count
    checkpoints = run.run.run.checkpoints
    notice_s = ceil(max(LEAST_NOTICE_S, SAVE_RATIO * checkpoints.write_s))
    starts = "your command starts" if run.is_own else "torchrun starts"
    limit_s = run.run.run.total_s.high + notice_s + EARLY_S
    options = [
        Option("--job-name", run.name, ""),
        Option("--nodes", str(nodes), f"{at}.node_count"),
        Option("--ntasks-per-node", "1", f"{starts} the ranks of its node"),
        *_devices(machine.accelerator, given, per_node, f"{at}.accelerators_per_node"),
        *WHOLE_NODES,
        Option("--time", _limit(limit_s), f"the upper end of {run.at}.run.total_s, then the notice"),
        Option("--requeue", "", "goes on from its newest checkpoint"),
        Option("--signal", f"B:USR1@{notice_s}", f"twice {run.at}.run.checkpoints.write_s"),
        Option("--open-mode", "append", ""),
    ]
    if nodes > 1:
        switches = f"1@{SWITCH_WAIT}" if nodes <= LEAF_NODES else f"{ceil(nodes / LEAF_NODES)}@{SWITCH_WAIT}"
        options.append(
            Option("--switches", switches, f"leaf switches of {LEAF_NODES} nodes, if they are free")
        )
    return options


def _pool_options(pool: ServedPool, given: Given) -> list[Option]:
    size, machine = pool.pool.replica.accelerator_count, pool.service.machine
    per_node = min(size, machine.accelerators_per_node)
    last = pool.pool.replica_count - 1
    return [
        Option("--job-name", pool.name, ""),
        Option("--array", f"0-{last}", f"{pool.at}.replica_count"),
        Option("--nodes", str(pool.nodes_per_replica), ""),
        *_devices(machine.accelerator, given, per_node, f"{pool.at}.replica.accelerator_count"),
        *_host(pool, per_node, given),
        Option("--time", "UNLIMITED", "a service has no end"),
        Option("--requeue", "", ""),
    ]


def _alone(pool: ServedPool, given: Given) -> bool:
    """Whether a replica has its nodes to itself: by all of their devices, or as nobody counts processors."""
    machine = pool.service.machine
    whole = pool.pool.replica.accelerator_count >= machine.accelerators_per_node
    return is_processor(machine.accelerator, given.devices) or (
        whole and slice_of(machine.accelerator, given) is None
    )


def _bound(pool: ServedPool, given: Given) -> str:
    """A step of one task is bound to one processor unless it is told; it takes no number from its job."""
    if _alone(pool, given) or share_of(pool.service.machine, 1, given) is None:
        return "--cpu-bind=none"
    return '--cpus-per-task="$SLURM_CPUS_PER_TASK"'


def _host(pool: ServedPool, count: int, given: Given) -> Sequence[Option]:
    """The rest of a node: all of it, or what goes with so many of its devices.

    By the task, not by the device: of slices no version counts processors and memory.
    """
    share = share_of(pool.service.machine, count, given)
    if _alone(pool, given):
        return WHOLE_NODES
    if share is None:
        return ()
    return (
        Option("--cpus-per-task", str(share.cpu_count), f"{share.because_cpu}, threads"),
        Option("--mem", f"{share.memory_gib}G", share.because_memory),
    )


def _unasked(pool: ServedPool, given: Given) -> list[str]:
    return [] if _alone(pool, given) else unknown_share(pool.service.machine, given)


def _devices(accelerator: str, given: Given, count: int, because: str) -> list[Option]:
    """Processors are no devices of Slurm's; a slice is a device whose type is its profile."""
    if is_processor(accelerator, given.devices):
        return []
    part = slice_of(accelerator, given)
    if part is not None and part.kind == "mig":
        return [Option("--gres", f"gpu:{part.profile}:{count}", because)]
    return [Option("--gpus-per-node", str(count), because)]


def _limit(seconds: float) -> str:
    """As Slurm reads a time, whole minutes.

    >>> _limit(90061.0)
    '1-01:02:00'
    """
    minutes = ceil(seconds / 60)
    days, rest = divmod(minutes, round(DAY_S / 60))
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def _directives(options: Sequence[Option]) -> list[str]:
    """Lines that `sbatch` reads."""
    said = [(f"#SBATCH {'='.join(option.words)}", option.because) for option in options]
    return list(commented(said))
