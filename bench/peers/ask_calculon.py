"""Runs where Calculon is: `python -P ask_calculon.py FOLDER`, questions on stdin, answers on stdout.

A question holds its application and execution as Calculon's own JSON files do, the name of one of its system
files, and what of that system the row states otherwise.
"""

import json
import logging
import sys
from pathlib import Path

folder = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(folder))
answers, sys.stdout = sys.stdout, sys.stderr  # whatever the peer prints is no answer

import calculon  # noqa: E402
from calculon.llm import Llm  # noqa: E402
from calculon.system import System  # noqa: E402


def predict(question):
    """Seconds of a step and GiB of a device, or the reason why there is none."""
    try:
        config = json.loads((folder / "systems" / f"{question['system']}.json").read_text("utf-8"))
        # The run happened, so it fitted: the limit is lifted and the memory reported.
        config["mem1"]["GiB"] = 10**9
        if question["network_gb_per_s"]:
            config["networks"][1]["bandwidth"] = question["network_gb_per_s"]
        system = System(config)
        model = Llm(Llm.Application(question["application"]), logging.getLogger("calculon"))
        model.compile(system, Llm.Execution.from_json(question["execution"]))
        model.run(system)
    except (AssertionError, KeyError, Llm.Error, ZeroDivisionError) as error:
        return {"error": f"{type(error).__name__}: {str(error)[:60]}"}
    return {"step_s": model.get_total_time(), "memory_gib": model.get_mem_tier1_cap_req() / 2**30}


print(json.dumps({"version": calculon.__version__}), file=answers)
for line in sys.stdin:
    print(json.dumps(predict(json.loads(line))), file=answers)
