"""A bill of materials of one version: its files by digest, and the packages where it was pushed.

CycloneDX 1.6 as JSON, as small as its readers take it. Source: cyclonedx.org/docs/1.6/json.
"""

import uuid
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distributions
from typing import Any

from twofold.live.registry.blobs import Stored

SPECIFICATION = "1.6"
SHA256 = "SHA-256"


@cache
def installed() -> tuple[tuple[str, str], ...]:
    """Name and version of every package that this process can import, as a lock lists them."""
    found = {
        (each.metadata["Name"] or "").lower().replace("_", "-"): each.version for each in distributions()
    }
    return tuple(sorted((name, version) for name, version in found.items() if name and version))


def bill_of(stored: Stored, name: str, pushed_at: str, packages: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The bill of a model that is called `name:number`. The same for the same bytes, time and packages."""
    model, _, number = name.partition(":")
    files = [
        {"type": "file", "bom-ref": each.path, "name": each.path, "hashes": [_hash(each.sha256)]}
        for each in stored.files
    ]
    libraries = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package}@{version}",
            "name": package,
            "version": version,
            "purl": f"pkg:pypi/{package}@{version}",
        }
        for package, version in packages
    ]
    told = f"{stored.digest} {name} {pushed_at} {packages}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, told)}",
        "version": 1,
        "metadata": {
            "timestamp": pushed_at,
            "component": {
                "type": "machine-learning-model",
                "bom-ref": stored.digest,
                "name": model,
                "version": number,
                "hashes": [_hash(stored.digest.partition(":")[2])],
            },
        },
        "components": [*files, *libraries],
    }


def _hash(hexadecimal: str) -> dict[str, str]:
    return {"alg": SHA256, "content": hexadecimal}
