"""What a newcomer finds by `dir(twofold)`, tab and `help(twofold)`: the verbs, each with one line."""

import re
import subprocess
import sys
from importlib import import_module
from operator import attrgetter

import twofold
from twofold.cli.verbs import VERBS

# Verbs that are rooms or several functions, so that the function has another name.
FUNCTIONS = {
    "init": ("starter", "infer"),
    "catalog": ("catalog_rows", "partitions", "kernels"),
    "measure": ("measure_device", "measure_serve", "measure_train", "measure_import"),
    "keys": ("add_key", "list_keys", "revoke_keys"),
    "jobs": ("submit_job", "list_jobs", "cancel_job", "job_logs"),
    "registry": ("Registry",),
    "report": ("write_page",),
}


def test_dir_lists_a_function_for_every_verb() -> None:
    for verb in VERBS:
        for name in FUNCTIONS.get(verb, (verb,)):
            assert name in dir(twofold), verb
            assert callable(getattr(twofold, name))


def test_help_lists_every_function_with_one_line_and_verbs_as_the_command_does() -> None:
    listed = dict(re.findall(r"^    (\w+) {2,}(\S.*)$", twofold.__doc__ or "", re.MULTILINE))
    assert sorted(listed) == sorted(twofold.__all__)
    for verb, said in VERBS.items():
        name = {"catalog": "catalog_rows", "report": "write_page"}.get(verb, verb)
        assert verb in ("init", "keys", "measure", "registry", "jobs") or listed[name] == said.summary


def test_every_verb_names_a_function_that_is_there() -> None:
    asked = [each for verb in VERBS.values() for each in (verb, *verb.questions.values())]
    for verb in asked:
        if not verb.questions:
            module, _, name = verb.answer.partition(".")
            assert callable(attrgetter(name)(import_module(f"twofold.app.{module}"))), verb.answer


def test_to_list_the_verbs_loads_none_of_them() -> None:
    program = "import sys, twofold; dir(twofold); sys.exit('twofold.app.planning' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_package_lists_its_verbs_for_dir_and_help() -> None:
    """In a process of its own, where nothing has been imported yet."""
    program = (
        "import pydoc, twofold; said = pydoc.render_doc(twofold, renderer=pydoc.plaintext)\n"
        "assert {'plan', 'simulate', 'validate', 'estimate', 'completion'} <= set(dir(twofold))\n"
        "assert all(f'    {name} ' in said for name in ('plan', 'completion', 'write_page')), said\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
