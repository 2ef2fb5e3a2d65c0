"""What every target is made from: the plan, its pools and runs, and where their weights are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twofold.catalog.types import Accelerator, Model, Node, Partition
from twofold.contracts.results.plan import Plan
from twofold.rendering.commands import Command
from twofold.rendering.engines import engine_command
from twofold.rendering.files import RenderedFile, Weights
from twofold.rendering.own import own_trainer
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.trainers import READ_FOLDERS, trainer_files


@dataclass(frozen=True, slots=True)
class Given:
    """A plan that is rendered."""

    plan: Plan
    digest: str
    pools: tuple[ServedPool, ...]
    runs: tuple[TrainedRun, ...]
    weights: Weights
    native_formats: Mapping[str, str]  # of weights, by what they are known by
    models: Mapping[str, Model]  # by name
    devices: Mapping[str, Accelerator]  # of the plan's machines, as far as a catalogue has them
    slices: Mapping[str, Partition] = field(default_factory=dict)  # of these, what are slices of a device
    nodes: Mapping[str, Node] = field(default_factory=dict)  # servers and instances, by the plan's names

    def engine_command(self, pool: ServedPool) -> Command:
        """How a replica starts; its weights are the shell's variable of the model."""
        native = "" if pool.is_own else self.native_formats[pool.weights]
        return engine_command(pool, f'"${self.weights.variable(pool.weights)}"', native)

    def pool_assignments(self, pool: ServedPool) -> list[str]:
        """Lines of a script that a replica is started after: where its weights are."""
        return [] if pool.is_own else [self.weights.assignment(pool.weights)]

    def run_assignments(self, run: TrainedRun) -> list[str]:
        """Lines of a script that a run is started after: where the weights are that it begins with."""
        if run.run.kind == "pretrain" or run.is_own:
            return []
        return [self.weights.assignment(run.weights, in_folder=run.run.framework in READ_FOLDERS)]

    def trainer_files(self, run: TrainedRun) -> tuple[Command, tuple[RenderedFile, ...]]:
        """How a node of a run starts, and the files that it reads."""
        if run.is_own:
            return own_trainer(run)
        weights = f'"${self.weights.variable(run.weights)}"'
        return trainer_files(run, weights, self.models[run.run.model], self.digest)
