"""Runs where AIConfigurator is: `python -P ask_aiconfigurator.py`, questions on stdin, answers on stdout.

A question holds keyword arguments of its documented `cli_estimate`. Only that predictor is called.
"""

import json
import logging
import os
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
answers, sys.stdout = sys.stdout, sys.stderr  # whatever the peer prints is no answer

import aiconfigurator_core  # noqa: E402
from aiconfigurator.cli.api import cli_estimate  # noqa: E402
from aiconfigurator.sdk.common import DefaultHFModels  # noqa: E402
from aiconfigurator.sdk.perf_database import get_latest_database_version  # noqa: E402

logging.disable(logging.CRITICAL)


def reason(error):
    """Few words for what a message says at length about one row."""
    if "OOM" in str(error):
        return "does not fit the memory, by its account"
    name = type(error).__name__
    return "no measured kernels" if name.startswith("PerfDataNotAvailable") else f"{name}: {str(error)[:60]}"


@cache
def newest(system, backend):
    """The peer's default version of a backend; asked once, since it takes seconds."""
    return get_latest_database_version(system=system, backend=backend)


@cache
def place_of(model):
    """The model's name, or a folder with the configuration that the peer ships but no longer lists."""
    if model in DefaultHFModels:
        return model
    name = model.replace("/", "--") + "_config.json"
    shipped = Path(aiconfigurator_core.__file__).parent / "model_configs" / name
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(shipped.read_text("utf-8"), "utf-8")
    return str(folder)


def predict(question):
    """Milliseconds of first and further tokens and tokens/s, or the reason why there is none."""
    try:
        found = newest(question["system_name"], question["backend_name"])
        if found is None:
            return {"error": f"no {question['backend_name']} data for {question['system_name']}"}
        model = place_of(question["model_path"])
        told = cli_estimate(**{**question, "model_path": model}, backend_version=found)
    except Exception as error:  # the peer's errors have no common type
        return {"error": reason(error)}
    return {"ttft_ms": told.ttft, "tpot_ms": told.tpot, "tokens_per_s": told.tokens_per_second}


print(json.dumps({"version": version("aiconfigurator")}), file=answers)
for line in sys.stdin:
    print(json.dumps(predict(json.loads(line))), file=answers, flush=True)
