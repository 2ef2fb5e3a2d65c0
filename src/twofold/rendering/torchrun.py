"""What every run that `torchrun` starts has on its line."""

from twofold.rendering.commands import Option
from twofold.rendering.files import RenderedFile
from twofold.rendering.records import TrainedRun

PORT = "29500"
DATA = '"${DATA:?set it to the data, as the training software reads it}"'
TOKENIZER = '"${TOKENIZER:?set it to a folder with the tokenizer}"'
CHECKPOINTS = '"${CHECKPOINTS:-checkpoints}"'


def launch(run: TrainedRun) -> list[Option]:
    """Nodes, ranks, and where the first of them is."""
    machine = f"{run.at}.machine"
    return [
        Option("--nnodes", str(run.run.machine.node_count), f"{machine}.node_count"),
        Option(
            "--nproc-per-node", str(run.run.machine.accelerators_per_node), f"{machine}.accelerators_per_node"
        ),
        Option("--node-rank", '"${NODE_RANK:-0}"', "0 on the first node, whose address all have"),
        Option("--master-addr", '"${MASTER_ADDR:-localhost}"', "the first node's"),
        Option("--master-port", PORT, "a free one of the first node"),
    ]


def micro_batch_count(run: TrainedRun) -> int:
    """Micro-batches that a rank adds up in one step."""
    return max(1, run.global_batch // (run.layout.dp * run.layout.micro_batch))


def lost_sizes(run: TrainedRun, whose: str, *names: str) -> list[str]:
    """Ranks of the layout that some software has no word for."""
    words = {"tp": "tensor parallel", "pp": "pipeline", "cp": "context parallel", "ep": "expert parallel"}
    sizes = [(name, getattr(run.layout, name)) for name in names]
    return [f"{size} {words[name]} ranks: {whose} has no option for them" for name, size in sizes if size > 1]


def file_word(file: RenderedFile) -> str:
    """Where a file of the run lies, as a word of the shell."""
    return f'"${{FILES:-.}}/{file.path}"'
