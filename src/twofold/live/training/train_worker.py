"""One rank of a training run, on the device that the job names; the library's launcher starts them all.

Fully sharded (FSDP2) AdamW training of a Llama from random weights. Everything that decides a number comes
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
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from twofold.live.training.artefact import flush
from twofold.live.training.batches import Batches, batches_of, stager_of
from twofold.live.training.checkpoints import complete, prune, remove, step_folder, step_of, survey
from twofold.live.training.corpus import TOKENIZER_FILES
from twofold.live.training.data_staging import data_digest, read_pin
from twofold.live.training.train_job import EXPORT, LINEAGE
from twofold.live.training.training_record import StepLine, append_event, append_step, mend, steps_path

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
)
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


@dataclass(slots=True)
class StepClock:
    """Splits the wall time of one step into parts. Mutable: it is read and reset once a step."""

    is_accelerator: bool = False
    parts_s: dict[str, float] = field(default_factory=dict)
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
    def waiting(self) -> Iterator[None]:
        """Time a collective."""
        began_s, on_core_s = time.perf_counter(), time.thread_time()
        yield
        self._waited_s += time.perf_counter() - began_s
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
    collective: Callable[..., Any]

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The buffers that FSDP reads from and writes into."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, **how: Any) -> Any:
        """Run it in the group and by the operation that FSDP names, and count the wait."""
        with self.clock.waiting():
            return self.collective(output_tensor, input_tensor, **how)


@dataclass(slots=True)
class Saver:
    """Writes checkpoints beside the training, one at a time, in a process group of its own.

    On the training's own group the saving thread and the training would interleave collectives, and hang.
    """

    order: Order
    group: Any
    _finisher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _pending: Future[None] | None = None

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Copy the state and start writing it; waits for the save before, if it still runs."""
        self.wait()
        began_s = time.perf_counter()
        folder = step_folder(self.order.run / "checkpoints", step)
        written = dcp.async_save(dict(state), checkpoint_id=folder, process_group=self.group)
        self._pending = self._finisher.submit(self._finish, written, folder, began_s)

    def wait(self) -> None:
        """Until nothing is being written; raises what writing raised."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _finish(self, written: Any, folder: Path, began_s: float) -> None:
        written.result()  # on rank 0: when every rank has written and the index is there
        if self.order.rank == 0:
            facts = {"step": step_of(folder), "size_bytes": complete(folder)}
            append_event(self.order.run, "checkpoint", **facts, write_s=time.perf_counter() - began_s)
            prune(folder.parent)


def main() -> None:
    """Train to the last step and export, from wherever the run stands."""
    order = read_order(Path(sys.argv[1]))
    torch.set_num_threads(order.thread_count)
    torch.use_deterministic_algorithms(True)
    me = {"launch": order.launch, "attempt": order.attempt, "rank": order.rank}
    append_event(order.run, "worker", process_id=os.getpid(), **me)
    mend(steps_path(order.run, order.rank))
    device = join(order)
    clock = StepClock(device.type == "cuda")
    model, optimiser = build(order, clock)
    saver = Saver(order, dist.new_group(backend="gloo"))
    first = resume(order, model, optimiser) + 1
    tell = partial(append_event, order.run)
    stager = stager_of(order.run, order.job["seed"], tell, is_leader=order.local_rank == 0)
    batches = batches_of(stager, order.job, order.rank, order.rank_count, first)
    clock.lap()
    for step in range(first, order.job["steps"] + 1):
        with clock.part("data"):
            inputs, targets = (each.to(device) for each in batches.next())
        loss = train_step(order, step, model, optimiser, clock, inputs, targets)
        with clock.part("checkpoint"):
            if step % order.job["checkpoint_every_steps"] == 0 or step == order.job["steps"]:
                saver.save(step, whole_state(order, model, optimiser))
        append_step(order.run, order.rank, step_line(order, step, loss, clock))
    batches.close()
    saver.wait()
    export(order, model, lineage_of(order, batches))
    dist.barrier()
    dist.destroy_process_group()


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
    )


def device_of(order: Order) -> torch.device:
    """Where this rank computes: what the job says, whatever else is there."""
    if order.job.get("device", "cpu") == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def join(order: Order) -> torch.device:
    """Meet the other ranks: over NCCL between accelerators, over gloo for what is on processors."""
    device = device_of(order)
    if device.type == "cuda":
        # Without it the library's products may differ from run to run: CUDA's notes on reproducibility.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def build(order: Order, clock: StepClock) -> tuple[Any, Any]:
    """The sharded model with random weights from the seed, and its optimiser."""
    torch.manual_seed(order.job["seed"])
    device = device_of(order)
    model = LlamaForCausalLM(config_of(order)).to(device)
    ranks = init_device_mesh(device.type, (order.rank_count,))  # FSDP would take an accelerator that it finds
    if order.rank == 0:
        # Tied weights are one parameter here.
        append_event(order.run, "built", parameter_count=sum(each.numel() for each in model.parameters()))
    compute = torch.bfloat16 if order.job["precision"] == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    gathers_twice = order.job["zero_stage"] == 3
    for module in (*model.model.layers, model):
        fully_shard(module, mesh=ranks, mp_policy=policy, reshard_after_forward=gathers_twice)
        module.set_custom_all_gather(Timed(clock, dist.all_gather_single))
        module.set_custom_reduce_scatter(Timed(clock, dist.reduce_scatter_single))
    # Fused: one kernel over all shards; a loop over parameters costs more in Python than in arithmetic here.
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=order.job["peak_learning_rate"],
        betas=(0.9, 0.95),
        weight_decay=order.job["weight_decay"],
        fused=True,
    )
    return model, optimiser


def config_of(order: Order) -> Any:
    """The model's configuration as the library reads it. Weights are fp32, whatever it was served in."""
    given = {key: value for key, value in order.model.items() if key != "torch_dtype"}
    return LlamaConfig(**{**given, "dtype": "float32", "use_cache": False, "attn_implementation": "sdpa"})


def resume(order: Order, model: Any, optimiser: Any) -> int:
    """Load the newest checkpoint that may be; returns how many steps are behind it.

    Rank 0 alone looks, so that all ranks take the same one, and deletes what was cut or altered: a save of
    the same step would otherwise write into it.
    """
    chosen = torch.zeros(1, dtype=torch.int64)
    if order.rank == 0:
        newest, refused = survey(order.run / "checkpoints")
        for folder, reason in refused.items():
            append_event(order.run, "refused", checkpoint=folder.name, reason=reason)
            remove(folder)
        chosen[0] = step_of(newest) if newest else 0
    dist.broadcast(chosen, src=0)
    step = int(chosen.item())
    if step:
        state = whole_state(order, model, optimiser)
        dcp.load(state, checkpoint_id=step_folder(order.run / "checkpoints", step))
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimiser"]}
        set_state_dict(model, optimiser, **parts)
        torch.set_rng_state(state[f"random-{order.rank}"])
    if order.rank == 0:
        append_event(order.run, "resumed", step=step, launch=order.launch, attempt=order.attempt)
    return step


def whole_state(order: Order, model: Any, optimiser: Any) -> dict[str, Any]:
    """All that the next step depends on, beside the order: weights, optimiser, random state of each rank."""
    weights, moments = get_state_dict(model, optimiser)
    return {"model": weights, "optimiser": moments, f"random-{order.rank}": torch.get_rng_state()}


def train_step(
    order: Order,
    step: int,
    model: Any,
    optimiser: Any,
    clock: StepClock,
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> float:
    """One step; returns the mean loss over all ranks."""
    with clock.part("forward"):
        logits = model(input_ids=inputs, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    with clock.part("backward"):
        loss.backward()
    mean_loss = loss.detach().clone() / order.rank_count
    with clock.waiting():
        dist.all_reduce(mean_loss)
    with clock.part("optimiser"):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(order.job, step)
        parameters = [each for each in model.parameters() if each.grad is not None]
        norm: Any = torch.nn.utils.get_total_norm([each.grad for each in parameters])
        with clock.waiting():
            norm = norm.full_tensor()
        torch.nn.utils.clip_grads_with_norm_(parameters, order.job["gradient_norm_limit"], norm)
        optimiser.step()
        optimiser.zero_grad()
    return float(mean_loss.item())


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
        step_s=step_s,
        peak_memory_bytes=peak_bytes(order),
        **{f"{name}_s": each_s for name, each_s in parts_s.items()},
    )


def peak_bytes(order: Order) -> int:
    """The most that this rank has held: of its accelerator's memory if it has one, else of the machine's."""
    if device_of(order).type == "cuda":
        return int(torch.cuda.max_memory_reserved())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES


def lineage_of(order: Order, batches: Batches) -> dict[str, Any]:
    """What the model was made from: with the same of all of it a run has the same losses, bit for bit.

    Names of runs and of machines are left out: equal work gives equal artefacts.
    """
    job = order.job
    tokens = job["steps"] * job["global_batch_sequences"] * job["sequence_tokens"]
    pins = [pin for number in batches.files_read(tokens) if (pin := read_pin(order.run, number))]
    settings = {name: job[name] for name in sorted(job) if name not in UNESSENTIAL}
    config = json.dumps(order.model, sort_keys=True).encode()
    return {
        "data": {"digest": data_digest(pins), "sha256": [pin.sha256 for pin in pins]},
        "tokenizer": order.corpus.name,
        "settings": settings,
        "model_config_sha256": hashlib.sha256(config).hexdigest(),
        "thread_count": order.thread_count,
        "software": {"twofold": version("twofold"), "torch": torch.__version__},
    }


def export(order: Order, model: Any, lineage: Mapping[str, Any]) -> None:
    """Write the whole model as a Hugging Face checkpoint with its tokenizer; the folder appears finished."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)  # whole on rank 0, empty elsewhere
    weights = get_model_state_dict(model, options=options)
    if order.rank != 0 or (order.run / EXPORT).exists():  # there, if a rank died after the last step
        return
    unfinished = order.run / ".hf.partial"
    shutil.rmtree(unfinished, ignore_errors=True)
    whole = LlamaForCausalLM(config_of(order))
    missing, unexpected = whole.load_state_dict(weights, strict=False)
    tied = {"lm_head.weight"} if whole.config.tie_word_embeddings else set()
    assert not unexpected and set(missing) <= tied, (missing, unexpected)
    special = json.loads((order.corpus / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    ends = {"eos_token_id": special[0]["id"], "pad_token_id": special[1]["id"], "bos_token_id": None}
    for name, token in ends.items():
        setattr(whole.config, name, token)
        setattr(whole.generation_config, name, token)
    whole.config.use_cache = whole.generation_config.use_cache = True
    whole.save_pretrained(unfinished)
    for name in filter(lambda name: (order.corpus / name).exists(), TOKENIZER_FILES):
        shutil.copyfile(order.corpus / name, unfinished / name)
    (unfinished / LINEAGE).write_text(json.dumps(lineage, indent=1, sort_keys=True) + "\n", "utf-8")
    for path in unfinished.iterdir():
        flush(path)
    unfinished.rename(order.run / EXPORT)
    flush(order.run)
    append_event(order.run, "exported", step=order.job["steps"])


if __name__ == "__main__":
    main()
