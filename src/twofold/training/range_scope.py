"""What decides how sure a predicted step is."""

from twofold.perf import Known
from twofold.training.stack import software_family


def range_scope(
    model: str, arch: str, accelerator: str, family: str, framework: str, precision: str, known: Known
) -> dict[str, str]:
    """The scope in which the ranges of step and memory are read: what the fits saw of it, and what it is.

    `arch` is `dense` or `moe`; names are the catalogue's.
    """
    software = software_family(framework, precision)
    return {
        "known": known.of("training", model, accelerator, software),
        "arch": arch,
        "software": software,
        "family": family,
        "accelerator": accelerator,
    }
