"""Builds a wheel whose busiest modules are compiled, where TWOFOLD_COMPILED is set; else changes nothing.

mypyc compiles what mypy has checked: the sources stay the only ones, and what they answer stays the same to
the last bit (tests/test_compiled.py). A C compiler is needed.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledHook(BuildHookInterface):  # type: ignore[type-arg]  # one with any configuration
    """Puts the compiled modules beside their sources: the interpreter takes them first."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not os.environ.get("TWOFOLD_COMPILED"):
            return
        from mypyc.build import mypycify
        from setuptools import Distribution

        root = Path(self.root)
        os.chdir(root / "src")  # mypyc names modules by their paths
        extensions = mypycify(
            ["--config-file", str(root / "pyproject.toml"), *self.config["modules"]],
            opt_level="2", debug_level="0", target_dir=str(root / "build" / "c"),
        )  # fmt: skip
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = str(root / "build" / "compiled")
        command.build_temp = str(root / "build" / "objects")
        command.ensure_finalized()
        command.run()
        for path in command.get_outputs():
            build_data["force_include"][path] = os.path.relpath(path, command.build_lib)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
