"""What is said of a model beside it: signatures, bills of materials and reports of evaluations, as manifests
that refer to its own.

A registry of the format finds them by their `subject`; they change nothing of the model's digest. Source: OCI
image specification 1.1, manifest.md, guidelines for artifact usage.
"""

import json
from pathlib import Path

from twofold.core.errors import AlteredError
from twofold.live.registry.blobs import (
    MANIFEST_TYPE,
    Stored,
    blob,
    checked_text,
    descriptor,
    put_text,
    to_json,
)
from twofold.live.training.artefact import TITLE

EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", "{}"
SIGNATURE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BILL = "application/vnd.cyclonedx+json"
EVALUATION = "application/vnd.twofold.evaluation.v1+json"
FILES = {SIGNATURE: "model.sig", BILL: "bom.json", EVALUATION: "evaluation.json"}


def put_referrer(folder: Path, model: Stored, artefact_type: str, text: str) -> str:
    """Store a text and a manifest that refers to the model's; the manifest's digest. Inside of `writing`."""
    size_bytes = blob(folder, model.digest.partition(":")[2]).stat().st_size
    subject = {"mediaType": MANIFEST_TYPE, "digest": model.digest, "size": size_bytes}
    layer = descriptor(put_text(folder, text), artefact_type)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": artefact_type,
        "config": descriptor(put_text(folder, EMPTY), EMPTY_TYPE),
        "layers": [{**layer, "annotations": {TITLE: FILES[artefact_type]}}],
        "subject": subject,
    }
    return f"sha256:{put_text(folder, to_json(manifest)).sha256}"


def read_referrer(folder: Path, digest: str) -> tuple[str, str]:
    """What it refers to, and its text. Raises AlteredError for bytes other than were stored."""
    manifest = json.loads(checked_text(folder, digest))
    try:
        return manifest["subject"]["digest"], checked_text(folder, manifest["layers"][0]["digest"])
    except (KeyError, IndexError, TypeError) as error:
        raise AlteredError(f"{digest[:19]} refers to no model", hint="restore it from a copy") from error
