"""One rank of a training run, on the device that the job names; the library's launcher starts them all.

Fully sharded (FSDP2) AdamW training of a causal model. Everything that decides a number comes
from the order and the step: weights and data from the seed, the learning rate from the step, and a checkpoint
holds weights, optimiser, random state. So a run that was killed anywhere has the same losses, bit for bit, as
one that was not.

How a step's time is split: the clock is read at the end of each part. Communication is what this rank waits
for in collectives: FSDP's all-gathers and reduce-scatters are called through wrappers that read the clock
before and after, and are blocking on gloo, so that nothing of them hides elsewhere; the all-reduces of the
loss and of the gradient norm are timed in place. Waiting for a slower rank counts as communication; packing
and unpacking of FSDP's buffers counts as compute. What no part claims is the rest of the step. While it
computes, a thread that is not on a core waits for one: the machine is busy with something else. On an
accelerator each part ends when the accelerator has done it, collectives inside it included: NCCL's run beside
the compute, and only those of the loss are waited for apart.
"""

import hashlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

from twofold.live.seals import key_of
from twofold.live.training.artefact import MANIFEST, digest_of, package_digest, sha256_of
from twofold.live.training.asked import AskedSaves
from twofold.live.training.batches import Batch, Batches, batches_of, held_out_batch, stager_of
from twofold.live.training.checkpoints import remove, step_folder, step_of, survey
from twofold.live.training.data_staging import data_digest, read_pin
from twofold.live.training.exporting import write_export
from twofold.live.training.fragments import fragmented_fraction
from twofold.live.training.loss_scale import LossScale
from twofold.live.training.safe_reading import SafeReader, load_state
from twofold.live.training.saving import Saver, StateCopy
from twofold.live.training.sealing import CHECKPOINTS, KEY, check_sealed
from twofold.live.training.train_job import EXPORT, STOP, WEIGHTS
from twofold.live.training.train_model import build_network, shard
from twofold.live.training.training_record import (
    StepLine,
    append_event,
    append_step,
    flush_lines,
    mend,
    read_events,
    steps_path,
)

COMPUTE = ("forward", "backward", "optimiser")  # parts in which this thread computes all the time, on a CPU
# Of a job: these do not change what is learnt.
UNESSENTIAL = (
    "name",
    "kill_rank",
    "kill_after_step",
    "checkpoint_every_steps",
    "data",
    "data_workers",
    "data_digest",
    "rendezvous",
)
# Of a job: places. What a run found there stands in an event; where it was, does not change what is learnt.
PLACES = {"weights": "weights", "branch_from": "branched"}
LAST_LINES_S = 60.0  # that a worker waits at its end for room for its lines
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


@dataclass(frozen=True, slots=True)
class Order:
    """What this rank was told: the job, the model, and who it is."""

    run: Path
    job: Mapping[str, Any]
    model: Mapping[str, Any]
    corpus: Path
    thread_count: int
    rank: int
    local_rank: int  # on its machine
    rank_count: int
    launch: int
    attempt: int
    code: str  # a digest of ours, as it was when this rank began
    key: bytes = field(repr=False)  # that seals what the run writes


@dataclass(slots=True)
class StepClock:
    """Splits the wall time of one step into parts. Mutable: it is read and reset once a step."""

    is_accelerator: bool = False
    parts_s: dict[str, float] = field(default_factory=dict)
    collectives_s: dict[str, float] = field(default_factory=dict)  # of all steps, by name
    _waited_s: float = 0.0  # in collectives, inside the part that is being timed
    _waiting_on_core_s: float = 0.0  # of that, what this thread computed
    _off_core_s: float = 0.0  # of compute, what this thread did not
    _step_began_s: float = field(default_factory=time.perf_counter)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part; what it waits for in collectives is taken out of it."""
        began_s, waited_before_s = time.perf_counter(), self._waited_s
        on_core_s, waiting_on_core_s = time.thread_time(), self._waiting_on_core_s
        yield
        if self.is_accelerator:
            torch.cuda.synchronize()
        taken_s = time.perf_counter() - began_s - (self._waited_s - waited_before_s)
        self.parts_s[name] = self.parts_s.get(name, 0.0) + taken_s
        if name in COMPUTE and not self.is_accelerator:
            on_core_s = time.thread_time() - on_core_s - (self._waiting_on_core_s - waiting_on_core_s)
            self._off_core_s += max(0.0, taken_s - on_core_s)

    @contextmanager
    def waiting(self, name: str = "all-reduce") -> Iterator[None]:
        """Time a collective."""
        began_s, on_core_s = time.perf_counter(), time.thread_time()
        yield
        taken_s = time.perf_counter() - began_s
        self._waited_s += taken_s
        self.collectives_s[name] = self.collectives_s.get(name, 0.0) + taken_s
        self._waiting_on_core_s += time.thread_time() - on_core_s

    def lap(self) -> tuple[float, dict[str, float]]:
        """Seconds since the last lap, and their parts; begins the next step."""
        now_s = time.perf_counter()
        step_s = now_s - self._step_began_s
        parts_s = {**self.parts_s, "communication": self._waited_s, "off_core": self._off_core_s}
        self._step_began_s, self._waited_s, self._off_core_s, self.parts_s = now_s, 0.0, 0.0, {}
        return step_s, parts_s


@dataclass(frozen=True, slots=True)
class Timed:
    """A collective of FSDP's with a clock around it."""

    clock: StepClock
    name: str
    collective: Callable[..., Any]

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The buffers that FSDP reads from and writes into."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, **how: Any) -> Any:
        """Run it in the group and by the operation that FSDP names, and count the wait."""
        with self.clock.waiting(self.name):
            return self.collective(output_tensor, input_tensor, **how)


@dataclass(slots=True)
class Trained:
    """What a rank trains, and what its steps change. Mutable."""

    order: Order
    network: Any
    optimiser: Any
    scale: LossScale
    clock: StepClock
    is_told_to_stop: bool = False  # by a signal to this process

    def tell(self, event: str, **facts: int | float | str) -> None:
        """Write down an event, on rank 0."""
        if self.order.rank == 0:
            append_event(self.order.run, event, **facts)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, beside the order."""
        return {**self.learnt(), **self.own_state()}

    def learnt(self) -> dict[str, Any]:
        """The weights and the optimiser's state; frozen weights are those that the run began with."""
        weights, moments = get_state_dict(self.network, self.optimiser, options=self.options)
        return {"model": weights, "optimiser": moments}

    def own_state(self) -> dict[str, Any]:
        """What is small and made anew; random numbers are those of each rank."""
        return {"scale": self.scale.state(), **self.random_states()}

    def random_states(self) -> dict[str, torch.Tensor]:
        """Of this rank, by their names in a checkpoint: an accelerator draws numbers of its own."""
        device, name = device_of(self.order), f"random-{self.order.rank}"
        found = {name: torch.get_rng_state()}
        if device.type == "cuda":
            found[f"{name}-cuda"] = torch.cuda.get_rng_state(device)
        return found

    def set_random_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Draw on from there; a state that is not given goes on as it is."""
        device, name = device_of(self.order), f"random-{self.order.rank}"
        if name in states:
            torch.set_rng_state(states[name])
        if f"{name}-cuda" in states:
            torch.cuda.set_rng_state(states[f"{name}-cuda"], device)

    @property
    def options(self) -> StateDictOptions:
        """Which weights a checkpoint holds."""
        frozen = self.order.job["adapter_rank"] > 0
        return StateDictOptions(ignore_frozen_params=frozen, strict=not frozen)


def main() -> None:
    """Train to the last step and export, from wherever the run stands; told to stop, save and end."""
    order = read_order(Path(sys.argv[1]))
    torch.set_num_threads(order.thread_count)
    torch.use_deterministic_algorithms(True)
    me = {"launch": order.launch, "attempt": order.attempt, "rank": order.rank}
    append_event(order.run, "worker", process_id=os.getpid(), **me)
    mend(steps_path(order.run, order.rank))
    device = join(order)
    trained = build(order, StepClock(device.type == "cuda"))
    signal.signal(signal.SIGTERM, lambda *_: setattr(trained, "is_told_to_stop", True))
    copy = StateCopy(trained.learnt, trained.optimiser, device.type == "cuda")
    saver = Saver(order.run, order.rank, dist.new_group(backend="gloo"), copy, order.key)
    tell_weights(trained)
    first = resume(trained) + 1
    tell = partial(append_event, order.run)
    stager = stager_of(order.run, order.job["seed"], tell, is_leader=order.local_rank == 0)
    batches = batches_of(stager, order.job, order.rank, order.rank_count, first)
    is_whole = train(trained, saver, batches, first)
    batches.close()
    saver.wait()
    for name, waited_s in trained.clock.collectives_s.items():
        append_event(order.run, "collective", name=name, rank=order.rank, waited_s=waited_s)
    if is_whole and not (order.run / EXPORT).exists():  # there, if a rank died after the last step
        lineage = lineage_of(order, batches)
        write_export(trained.network, order.run / EXPORT, order.corpus, lineage, order.rank, order.key)
        trained.tell("exported", step=order.job["steps"])
    dist.barrier()
    flush_lines(time.monotonic() + LAST_LINES_S)
    dist.destroy_process_group()


def train(trained: Trained, saver: Saver, batches: Batches, first: int) -> bool:
    """The steps from `first` on; False when it was told to stop before the last one."""
    order, job, clock = trained.order, trained.order.job, trained.clock
    asked, held_out = AskedSaves(order.run, order.rank), _held_out(trained, batches)
    clock.lap()
    for step in range(first, job["steps"] + 1):
        with clock.part("data"):
            batch = on_device(order, batches.next())
        loss, stops = train_step(trained, step, batch)
        with clock.part("checkpoint"):
            due = step % job["checkpoint_every_steps"] == 0 or step == job["steps"] or stops
            if asked.now() or due:
                saver.save(step, trained.own_state())
        append_step(order.run, order.rank, step_line(order, step, loss, clock))
        if held_out and (step % job["evaluate_every_steps"] == 0 or step == job["steps"]):
            trained.tell("evaluated", step=step, loss=evaluate(trained, held_out).hex())
            clock.lap()
        if stops and step < job["steps"]:
            saver.wait()
            trained.tell("stopped", step=step, launch=order.launch)
            return False
    return True


def _held_out(trained: Trained, batches: Batches) -> Batch | None:
    """What the job is evaluated by, where it asks for that."""
    order = trained.order
    if not order.job["evaluate_every_steps"]:
        return None
    found = held_out_batch(batches.stager, order.job, order.rank, order.rank_count)
    if found is None:
        trained.tell("not-evaluated", reason="the first file holds too little text to hold some out")
        return None
    return on_device(order, found)


def read_order(path: Path) -> Order:
    """The order, and what the launcher says in the environment."""
    data = json.loads(path.read_text("utf-8"))
    return Order(
        run=path.parent,
        job=data["job"],
        model=data["model"],
        corpus=path.parent / "corpus" / data["corpus"],
        thread_count=data["thread_count"],
        rank=int(os.environ["RANK"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        rank_count=int(os.environ["WORLD_SIZE"]),
        launch=int(os.environ["TWOFOLD_LAUNCH"]),
        attempt=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        code=package_digest(),
        key=key_of(Path(os.environ[KEY]), make=False),
    )


def device_of(order: Order) -> torch.device:
    """Where this rank computes: what the job says, whatever else is there."""
    if order.job.get("device", "cpu") == "cpu":  # one of before says none
        return torch.device("cpu")
    return torch.device("cuda", order.local_rank)


def on_device(order: Order, batch: Batch) -> Batch:
    """A batch where this rank computes."""
    device = device_of(order)
    return batch[0].to(device), batch[1].to(device)


def join(order: Order) -> torch.device:
    """Meet the other ranks: over NCCL between accelerators, over gloo for what is on processors."""
    device = device_of(order)
    if device.type == "cuda":
        # Without it the library's products may differ from run to run: CUDA's notes on reproducibility.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def build(order: Order, clock: StepClock) -> Trained:
    """The sharded model and its optimiser."""
    tell = partial(append_event, order.run) if order.rank == 0 else lambda *_, **__: None
    device = device_of(order)
    network = build_network(order.job, order.model, tell).to(device)
    ranks = init_device_mesh(device.type, (order.rank_count,))  # FSDP would take an accelerator that it finds

    def timed(module: Any) -> None:
        module.set_custom_all_gather(Timed(clock, "all-gather", dist.all_gather_single))
        module.set_custom_reduce_scatter(Timed(clock, "reduce-scatter", dist.reduce_scatter_single))

    shard(network, order.job, ranks, tell, timed)
    # Fused: one kernel over all shards; a loop over parameters costs more in Python than in arithmetic here.
    optimiser = torch.optim.AdamW(
        [each for each in network.parameters() if each.requires_grad],
        lr=order.job["peak_learning_rate"],
        betas=(0.9, 0.95),
        weight_decay=order.job["weight_decay"],
        fused=True,
    )
    return Trained(order, network, optimiser, LossScale.of(order.job["precision"]), clock)


def tell_weights(trained: Trained) -> None:
    """Write down which weights the run begins with, once: they are read anew at each start."""
    order, event = trained.order, PLACES["weights"]
    if order.job["weights"] and order.rank == 0 and not read_events(order.run, event):
        trained.tell(event, sha256=digest_of(Path(order.job["weights"]).glob(WEIGHTS)))


def resume(trained: Trained) -> int:
    """Load the newest checkpoint that may be; returns how many steps are behind it.

    Rank 0 alone looks, so that all ranks take the same one, and deletes what was cut, altered or planted: a
    save of the same step would otherwise write into it. A run without any that branches off another begins
    with that.
    """
    order = trained.order
    chosen = torch.zeros(1, dtype=torch.int64)
    if order.rank == 0:
        newest, refused = survey(order.run / CHECKPOINTS, order.key)
        for folder, reason in refused.items():
            append_event(order.run, "refused", checkpoint=folder.name, reason=reason)
            remove(folder)
        chosen[0] = step_of(newest) if newest else 0
    dist.broadcast(chosen, src=0)
    step = int(chosen.item())
    folder = step_folder(order.run / CHECKPOINTS, step)
    if not step and order.job["branch_from"]:
        folder = Path(order.job["branch_from"])
        step = step_of(folder)
        check_sealed(folder, order.key)
        digest = sha256_of(folder / MANIFEST)
        trained.tell("branched", step=step, checkpoint=str(folder), sha256=digest)
    if step:
        _load(trained, folder)
    trained.tell("resumed", step=step, launch=order.launch, attempt=order.attempt)
    return step


def _load(trained: Trained, folder: Path) -> None:
    """A checkpoint's state, by as many ranks as there are now: a new one keeps its own random numbers."""
    state, reader = trained.state(), SafeReader(folder)
    known = reader.read_metadata().state_dict_metadata
    for name in trained.random_states().keys() - known.keys():
        del state[name]
    load_state(state, reader)
    parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimiser"]}
    set_state_dict(trained.network, trained.optimiser, **parts, options=trained.options)
    trained.scale.restore(state["scale"])
    trained.set_random_states(state)


def train_step(trained: Trained, step: int, batch: Batch) -> tuple[float, bool]:
    """One step, in as many micro-batches as the job says; the mean loss over all ranks, and whether to stop.

    Gradients of micro-batches are summed in fp32, and exchanged with the last one.
    """
    order, clock, network = trained.order, trained.clock, trained.network
    micro = order.job["micro_batch_sequences"] or len(batch[0])
    parts = list(zip(batch[0].split(micro), batch[1].split(micro), strict=True))
    said = torch.zeros(2, dtype=torch.float64)  # the loss, and how many ranks were told to stop
    said[1] = trained.is_told_to_stop or (order.run / STOP).exists()
    for at, (inputs, targets) in enumerate(parts, 1):
        network.set_requires_gradient_sync(at == len(parts))
        with clock.part("forward"):
            loss = loss_of(network, inputs, targets) / len(parts)
        with clock.part("backward"):
            (loss * trained.scale.scale).backward()
        said[0] += loss.detach().double().cpu() / order.rank_count
    with clock.waiting():
        dist.all_reduce(said)
    with clock.part("optimiser"):
        _descend(trained, step)
    return float(said[0].item()), bool(said[1].item())


def loss_of(network: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean loss of a batch, its logits in fp32 whatever they were computed in."""
    logits = network(input_ids=inputs, use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _descend(trained: Trained, step: int) -> None:
    """Clip the gradients and take the step, unless they overflowed."""
    job, optimiser = trained.order.job, trained.optimiser
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(job, step)
    parameters = [each for each in trained.network.parameters() if each.grad is not None]
    norm: Any = torch.nn.utils.get_total_norm([each.grad for each in parameters]) / trained.scale.scale
    with trained.clock.waiting():
        norm = norm.full_tensor()
    scale = trained.scale.scale
    if trained.scale.heard(is_finite=bool(norm.isfinite())):
        if scale != 1.0:
            torch._foreach_div_([each.grad for each in parameters], scale)
        torch.nn.utils.clip_grads_with_norm_(parameters, job["gradient_norm_limit"], norm)
        optimiser.step()
    optimiser.zero_grad()


def evaluate(trained: Trained, batch: Batch) -> float:
    """The mean loss over all ranks on text that nothing trained on."""
    trained.network.eval()
    micro = trained.order.job["micro_batch_sequences"] or len(batch[0])
    with torch.no_grad():
        parts = zip(batch[0].split(micro), batch[1].split(micro), strict=True)
        losses = [float(loss_of(trained.network, *part)) * len(part[0]) for part in parts]
    trained.network.train()
    mean = torch.tensor(sum(losses) / len(batch[0]) / trained.order.rank_count, dtype=torch.float64)
    dist.all_reduce(mean)
    return float(mean)


def learning_rate(job: Mapping[str, Any], step: int) -> float:
    """Linear warm-up to the peak, then a cosine to a tenth of it at the last step."""
    peak, warm_up_steps = float(job["peak_learning_rate"]), int(job["warm_up_steps"])
    if step <= warm_up_steps:
        return peak * step / warm_up_steps
    done = (step - warm_up_steps) / max(1, int(job["steps"]) - warm_up_steps)
    return peak * (0.55 + 0.45 * math.cos(math.pi * done))


def step_line(order: Order, step: int, loss: float, clock: StepClock) -> StepLine:
    """The line of this step; the next step's time begins here."""
    step_s, parts_s = clock.lap()
    return StepLine(
        launch=order.launch,
        attempt=order.attempt,
        step=step,
        loss=loss.hex(),
        at_s=time.time(),
        steady_s=time.monotonic(),
        step_s=step_s,
        peak_memory_bytes=peak_bytes(order),
        fragmented_fraction=fragmented(order),
        **{f"{name}_s": each_s for name, each_s in parts_s.items()},
    )


def peak_bytes(order: Order) -> int:
    """The most that this rank has held: of its accelerator's memory if it has one, else of the machine's."""
    if device_of(order).type == "cuda":
        return int(torch.cuda.max_memory_reserved())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES


def fragmented(order: Order) -> float:
    """Of the memory that this rank holds, the accelerator's if it has one, what is free inside it."""
    if device_of(order).type == "cuda":
        reserved = torch.cuda.memory_reserved()
        return 1.0 - torch.cuda.memory_allocated() / reserved if reserved else 0.0
    return fragmented_fraction() or 0.0


def lineage_of(order: Order, batches: Batches) -> dict[str, Any]:
    """What the model was made from: with the same of all of it a run has the same losses, bit for bit.

    Names of runs and of machines are left out: equal work gives equal artefacts.
    """
    job = order.job
    tokens = job["steps"] * job["global_batch_sequences"] * job["sequence_tokens"]
    pins = [pin for number in batches.files_read(tokens) if (pin := read_pin(order.run, number))]
    settings = {name: job[name] for name in sorted(job) if name not in UNESSENTIAL}
    for name, event in PLACES.items():
        if job[name]:
            settings[name] = read_events(order.run, event)[-1]["sha256"]
    config = json.dumps(order.model, sort_keys=True).encode()
    return {
        "data": {"digest": data_digest(pins), "sha256": [pin.sha256 for pin in pins]},
        "tokenizer": order.corpus.name,
        "settings": settings,
        "model_config": order.model,
        "model_config_sha256": hashlib.sha256(config).hexdigest(),
        "thread_count": order.thread_count,
        "software": {"twofold": version("twofold"), "torch": torch.__version__, "code": order.code},
    }


if __name__ == "__main__":
    main()
