"""The shipped JSON Schema and the reference page are the typed models, written out."""

import json
from pathlib import Path
from typing import Any

import pytest

from fits.page_spec import PAGE, reference_page
from fits.spec_schema import parts_of, shipped_schema_text, spec_json_schema, spec_schema_text
from twofold.contracts.spec.reader import keys_of
from twofold.contracts.spec.spec import Spec

ROOT = Path(__file__).parents[3]
REMAKE = "run `python -m fits.page_spec`"


def takes(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """A small reader of the parts of JSON Schema that ours uses."""
    if "$ref" in schema:
        return takes(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], value, root)
    if "anyOf" in schema:
        return any(takes(choice, value, root) for choice in schema["anyOf"])
    kinds = {"string": str, "integer": int, "object": dict, "array": list, "boolean": bool}
    wanted = schema.get("type", list(kinds))
    if not isinstance(
        value, tuple(kinds[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted))
    ):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list):
        return all(takes(schema["items"], item, root) for item in value)
    if not isinstance(value, dict):
        return True
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    return set(schema.get("required", ())) <= set(value) and all(
        takes(known[key], item, root) if key in known else others is not False and takes(others, item, root)
        for key, item in value.items()
    )


def test_the_shipped_schema_is_the_models() -> None:
    assert shipped_schema_text() == spec_schema_text(), REMAKE


def test_the_reference_page_is_the_models() -> None:
    assert (ROOT / PAGE).read_text("utf-8") == reference_page(), REMAKE


def test_every_key_is_in_the_schema_and_on_the_page() -> None:
    text = json.dumps(spec_json_schema())
    for part in parts_of(Spec):
        for key, field in keys_of(part).items():
            assert f'"{key}"' in text
            assert f"| `{key}` |" in reference_page()
            assert field.description, f"{part.__name__}.{key} says nothing"


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"training": {"model": "m", "tokens": "1 Gtok"}}, True),
        ({"model": "m", "training": [{"tokens": "1 Gtok"}]}, True),
        ({"training": {"tokens": "1 Gtok", "on": "4xH200", "headroom": {"retries": "5 %"}}}, True),
        (
            {"serving": {"model": {"measured": "a.csv"}, "classes": {"a": {"traffic": {"rate": "1 /s"}}}}},
            True,
        ),
        ({"serving": {"quantisation": "fp8", "classes": {"a": {"traffic": {"input": "9 tok"}}}}}, True),
        ({"training": {"tokens": 5}}, False),
        ({"training": {"tokens": "1 Gtok", "kind": "pretrin"}}, False),
        ({"trainin": {}}, False),
        ({"serving": {"zones": 3}}, False),
        ({"supply": {"shop": {"terms": ["weekly"]}}}, False),
    ],
)
def test_the_schema_takes_what_the_reader_takes(spec: dict[str, Any], fits: bool) -> None:
    schema = spec_json_schema()
    assert takes(schema, spec, schema) is fits
