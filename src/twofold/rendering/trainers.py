"""How a run is started on each of its nodes: which training software takes which line, and what all share.

What starts the line sets NODE_RANK and MASTER_ADDR where there are several nodes, and FILES, the folder that
the files of the run lie in. DATA and what else is not in the plan is asked for by the line itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from twofold.catalog.names import canonical
from twofold.catalog.types import Model
from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError
from twofold.rendering import megatron, sharded, titan
from twofold.rendering.commands import Command
from twofold.rendering.files import RenderedFile
from twofold.rendering.records import TrainedRun, label

Trainer = Callable[[TrainedRun, str, Model, str], tuple[Command, tuple[RenderedFile, ...]]]
# Families of software whose runs are started alike, by the names that plans have for them.
TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {
        **dict.fromkeys(
            ("megatron-core", "megatron-core-ep-overlap", "megatron-lm-2023", "dualpipe"),
            megatron.megatron_lm,
        ),
        **dict.fromkeys(("megatron-bridge", "nemo"), megatron.megatron_bridge),
        "torchtitan": titan.torchtitan,
        **dict.fromkeys(("pytorch-fsdp", "llm-foundry", "fms-fsdp", "transformers"), sharded.accelerate),
        **dict.fromkeys(("deepspeed", "megatron-deepspeed"), sharded.deepspeed),
    }
)
READ_FOLDERS = ("torchtitan",)  # which find no weights by the name of a repository
OWN = "pytorch-fsdp"  # what `up` trains with, on processors


def trained_runs(plan: Plan, families: Mapping[str, str]) -> tuple[TrainedRun, ...]:
    """Every run, with its software by the name of its family: a spec says `DeepSpeed ZeRO-3`, or a release.

    `families` are these names by what a spec may say, however it is spelt. Raises ValueRefusedError for
    names of runs that no file has.
    """
    spelt = {canonical(said): family for said, family in families.items()}
    found: list[TrainedRun] = []
    for run in plan.training:
        said = run.framework or ""
        family = said.lower() if said.lower() in TRAINERS else spelt.get(canonical(said), said)
        own = replace(run, framework=families.get(said, family))
        found.append(TrainedRun(label(plan.name, run.name), f"training.{run.name}", own))
    return tuple(found)


def trainer_files(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """How a run is started on each of its nodes, and the files that it reads beside its data.

    Raises ValueRefusedError for training software that no line is known of.
    """
    name = run.run.framework or ""
    if name == OWN and sharded.is_own(run):
        return sharded.own_trainer(run, weights, model, plan_digest)
    if name not in TRAINERS:
        what = f"no command line is known of the training software `{name}`"
        raise ValueRefusedError(what, hint=f"write `framework:` with one of {', '.join(TRAINERS)}")
    return TRAINERS[name](run, weights, model, plan_digest)
