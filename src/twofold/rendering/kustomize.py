"""What `kubectl apply -k` reads first: the manifests of a folder, scripts as config maps, images to pin."""

from collections.abc import Iterable, Mapping, Sequence

from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.yaml_text import Node, yaml_text

# Kustomize knows no names of config maps inside a JobSet or a RayJob, and would rename only the maps.
UNHASHED: Node = {"disableNameSuffixHash": True}


def kustomization(
    given: Given,
    manifests: Sequence[str],
    beside: Mapping[str, Sequence[str]],
    images: Iterable[str],
    needs: Sequence[str],
    lost: Sequence[str] = (),
) -> RenderedFile:
    """`beside` are the files that a run's pods mount, by the run; images with a tag are pinned already."""
    maps: Node = [{"name": f"{name}-files", "files": [*files]} for name, files in beside.items()]
    pinned: Node = [{"name": image} for image in sorted(set(images)) if ":" not in image]
    found: dict[str, Node] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*manifests],
        **({"configMapGenerator": maps, "generatorOptions": UNHASHED} if beside else {}),
        "images": pinned,
    }
    lines = [
        *head(f"{given.plan.name}: kubectl apply -k .", given.digest, lost),
        *(f"# {line}" for line in needs),
    ]
    lines.append("# Give each of `images` the `newTag` that you have tried: versions are not in the plan.")
    return RenderedFile("kustomization.yaml", yaml_text([found], lines))
