"""The spec's JSON Schema, from its typed models: editors complete keys and check values with it."""

import json
from importlib.resources import files
from typing import Any

from twofold.contracts.spec.defaults import flat
from twofold.contracts.spec.fields import Part
from twofold.contracts.spec.reader import keys_of, part_of
from twofold.contracts.spec.spec import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = "twofold.schema.json"


def spec_json_schema() -> dict[str, Any]:
    """The schema of the file as people write it, the short form included."""
    schema = Spec.model_json_schema(by_alias=True, mode="validation")
    for key in ("training", "serving"):
        listed = schema["properties"][key]
        schema["properties"][key] = {
            "description": listed.pop("description"),
            "anyOf": [listed["items"], {"type": "array", "items": listed["items"]}],
        }
    _write_defaults(schema)
    _allow_inherited_model(schema)
    _allow_lists_of_one(schema)
    return {"$schema": DIALECT, "title": "twofold.yaml", **_without_noise(schema)}


def spec_schema_text() -> str:
    """The bytes of the shipped file."""
    return json.dumps(spec_json_schema(), indent=1, ensure_ascii=False) + "\n"


def shipped_schema_text() -> str:
    """The file inside the package."""
    return files("twofold.contracts").joinpath("data", FILE_NAME).read_text("utf-8")


def _write_defaults(schema: dict[str, Any]) -> None:
    """Defaults as a file writes them: `60 s`, not 60.0."""
    for part in parts_of(Spec):
        properties = (schema if part is Spec else schema["$defs"][part.__name__])["properties"]
        for key, field in keys_of(part).items():
            if isinstance(field.default, float) or key == "global_batch":
                properties[key]["default"] = default_text(part, key)


def _allow_inherited_model(schema: dict[str, Any]) -> None:
    """A run or service may take the model that stands above it."""
    for part in ("TrainingRun", "Service"):
        definition = schema["$defs"][part]
        definition["required"] = [key for key in definition["required"] if key != "model"]


def _allow_lists_of_one(schema: dict[str, Any]) -> None:
    """Where a list is expected, one value will do; where a mapping has a text form, the text will do."""
    for part in schema["$defs"].values():
        for key, value in part.get("properties", {}).items():
            if value.get("type") == "array":
                outer = {name: value.pop(name) for name in ("description", "default") if name in value}
                part["properties"][key] = {**outer, "anyOf": [value["items"], value]}
    for name in ("ComplianceSpec", "ModelReference", "FixedCluster", "Lengths", "Variant"):
        mapping = {**schema["$defs"][name], "type": "object"}
        description = mapping.pop("description", "")
        schema["$defs"][name] = {"description": description, "anyOf": [{"type": "string"}, mapping]}


def _without_noise(value: Any) -> Any:
    """Drops generated titles, and `null` where absence is meant: a file never writes null."""
    if isinstance(value, list):
        return [_without_noise(item) for item in value]
    if not isinstance(value, dict):
        return value
    choices = [choice for choice in value.get("anyOf", []) if choice != {"type": "null"}]
    if "anyOf" in value and len(choices) == 1:
        value = {**choices[0], **{key: item for key, item in value.items() if key != "anyOf"}}
    elif "anyOf" in value:
        value = {**value, "anyOf": choices}
    noise = {"title"} if isinstance(value.get("title"), str) else set()
    noise |= {"default"} if value.get("default", "") is None else set()
    return {key: _without_noise(item) for key, item in value.items() if key not in noise}


def parts_of(part: type[Part]) -> list[type[Part]]:
    """A part and every kind of part below it, each once, in the order that a reader meets them."""
    found = [part]
    for owner in found:
        inner = [part_of(field.annotation) for field in owner.model_fields.values()]
        found += [one for one in dict.fromkeys(inner) if one is not None and one not in found]
    return found


def default_text(part: type[Part], key: str) -> str:
    """A key's fixed default as a user would write it; empty when it has none, or depends on other keys."""
    for name, field in part.model_fields.items():
        fixed = None if field.is_required() or field.default_factory else field.default
        is_part = part_of(field.annotation) is not None  # its own keys show their defaults
        if key == (field.alias or name) and fixed is not None and not is_part:
            example = part.model_construct(**{name: fixed})
            return flat(example.model_dump(mode="json", by_alias=True, include={name})[key])
    return ""
