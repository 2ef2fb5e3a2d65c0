"""What rows were measured of, a server or training software of the user's own: started by reference.

Its image and its command only its owner knows. Files ask for them, and tell what the plan chose by variables.
A server listens on PORT, and answers `/health` with 200 once it can answer.
"""

from twofold.rendering.commands import Command, Option
from twofold.rendering.files import RenderedFile
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.saving import stopped

PORT = "PORT"
ASKED_SERVER = "set it to the command of your server, which listens on $PORT"
ASKED_TRAINER = "set it to the command of your training software, which is started on each node"
ASKED_IMAGE = "set it to the image of your server, which listens on PORT"
# A dollar within a message of the shell would be filled in.
SERVER = f'"${{SERVER:?{ASKED_SERVER.replace("$", "")}}}"'
TRAINER = f'"${{TRAINER:?{ASKED_TRAINER}}}"'
PROBED = "what ready means: your server answers /health with 200 once it can answer, or change the path"

FOUND = "how its ranks find each other: your command, by NODE_RANK, MASTER_ADDR and what is told below"
OWN_STOPS = "your command has to, else it stops"


def own_server(pool: ServedPool) -> Command:
    """A server by the command in SERVER, or by its image's own."""
    told = (
        Option(PORT, str(pool.port), "one for each pool"),
        Option("MAX_BATCH", str(pool.pool.replica.max_batch), f"{pool.at}.replica.max_batch"),
    )
    return Command(("sh", "-c", SERVER, pool.name), (), told)


def own_trainer(run: TrainedRun) -> tuple[Command, tuple[RenderedFile, ...]]:
    """A run by the command in TRAINER, on each of its nodes."""
    machine, at = run.run.machine, f"{run.at}.machine"
    interval = f"{run.at}.run.checkpoints.interval_s"
    told = (
        Option("NODE_COUNT", str(machine.node_count), f"{at}.node_count"),
        Option("ACCELERATORS_PER_NODE", str(machine.accelerators_per_node), f"{at}.accelerators_per_node"),
        Option("GLOBAL_BATCH_SAMPLES", str(run.global_batch), f"{run.at}.batch_samples"),
        Option("STEPS", str(run.steps_count), f"{run.at}.run.steps"),
        Option("CHECKPOINT_EVERY_STEPS", str(run.checkpoint_steps), interval),
    )
    lost = (FOUND, *stopped(run, OWN_STOPS))
    return Command(("sh", "-c", TRAINER, run.name), (), told, lost), ()
