"""What a cluster's scheduler calls an accelerator, a slice of one included.

Sources  the device plugins of NVIDIA (MIG strategy `mixed`), AMD, Intel, AWS Neuron and Google Cloud TPUs;
         ray.util.accelerators; names of SkyPilot's catalogue.
"""

from collections.abc import Mapping

from twofold.catalog.types import Accelerator
from twofold.core.errors import ValueRefusedError

PLUGINS = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "AWS": "aws.amazon.com/neuron",
    "Google": "google.com/tpu",
}
BY_FAMILY = {"gaudi": "habana.ai/gaudi", "xe-hpc": "gpu.intel.com/i915"}
RAY_NAMES = {
    "A100-SXM4-40GB": "A100-40G",
    "A100-PCIe-40GB": "A100-40G",
    "A100-SXM4-80GB": "A100-80G",
    "A100-PCIe-80GB": "A100-80G",
    "MI300A": "AMD-Instinct-MI300A",
    "MI210": "AMD-Instinct-MI210",
}
RAY_HEADS = ("V100", "T4", "A10G", "L40S", "L4", "H100", "H200", "H20", "B200", "B300", "GB200", "GB300")
SKY_NAMES = {
    "A100-SXM4-40GB": "A100",
    "A100-PCIe-40GB": "A100",
    "A100-SXM4-80GB": "A100-80GB",
    "A100-PCIe-80GB": "A100-80GB-PCIe",
    "H100-PCIe-80GB": "H100-PCIe",
    "H100-NVL-94GB": "H100-NVL",
}
SKY_HEADS = (
    *("V100", "T4", "A10G", "A10", "L40S", "L40", "L4", "H100", "H200"),
    *("B200", "B300", "GB200", "MI300X"),
)
# What GPU feature discovery calls a node's devices: the driver's name, with dashes.
PRODUCT = "nvidia.com/gpu.product"
PRODUCTS = {
    "A100-SXM4-40GB": "NVIDIA-A100-SXM4-40GB",
    "A100-SXM4-80GB": "NVIDIA-A100-SXM4-80GB",
    "A100-PCIe-40GB": "NVIDIA-A100-PCIE-40GB",
    "A100-PCIe-80GB": "NVIDIA-A100-80GB-PCIe",
    "H100-SXM5-80GB": "NVIDIA-H100-80GB-HBM3",
    "H100-PCIe-80GB": "NVIDIA-H100-PCIe",
    "H100-NVL-94GB": "NVIDIA-H100-NVL",
    "H200-SXM5-141GB": "NVIDIA-H200",
    "B200-SXM-180GB": "NVIDIA-B200",
    "L40S": "NVIDIA-L40S",
    "L40": "NVIDIA-L40",
    "L4": "NVIDIA-L4",
    "A10": "NVIDIA-A10",
    "A10G": "NVIDIA-A10G",
    "A30": "NVIDIA-A30",
    "A40": "NVIDIA-A40",
    "T4": "Tesla-T4",
}


def product_label(name: str) -> str:
    """The label of nodes with these devices, slices of them included; "" where it is not known."""
    return PRODUCTS.get(name.partition(":")[0], "")


def is_processor(name: str, devices: Mapping[str, Accelerator]) -> bool:
    """Whether a machine's device is its processors, which no scheduler counts."""
    found = devices.get(name)
    return found is not None and found.family == "cpu"


def image_vendor(name: str, devices: Mapping[str, Accelerator]) -> str:
    """Whose devices an image is to drive; "" for processors, whoever makes them, and for unknown ones."""
    found = devices.get(name)
    return found.vendor if found and not is_processor(name, devices) else ""


def plugin_name(name: str, devices: Mapping[str, Accelerator]) -> str:
    """The resource of Kubernetes that pods ask accelerators by; "" for processors, which nothing counts.

    Raises ValueRefusedError for a device that no plugin is known of.
    """
    device, _, profile = name.partition(":")
    found = devices.get(name)
    vendor, family = (found.vendor, found.family) if found else ("", "")
    if is_processor(name, devices):
        return ""
    plugin = BY_FAMILY.get(family) or PLUGINS.get(vendor, "")
    if not plugin:
        hint = "name an accelerator of the catalogue, or render for the target `shell`"
        raise ValueRefusedError(f"no device plugin of Kubernetes is known for `{device}`", hint=hint)
    if profile[:1].isdigit() and vendor == "NVIDIA":  # MIG's profiles; types of vGPUs begin with the device
        return f"nvidia.com/mig-{profile.replace('+', '.')}"
    return plugin


def ray_name(name: str) -> str:
    """As Ray says it; "" where it has no word, as for slices."""
    if ":" in name:
        return ""
    return RAY_NAMES.get(name) or _head(name, RAY_HEADS)


def sky_name(name: str) -> str:
    """As SkyPilot says it, of a slice the whole device; the catalogue's own name where it has none."""
    name = name.partition(":")[0]
    return SKY_NAMES.get(name) or _head(name, SKY_HEADS) or name


def _head(name: str, heads: tuple[str, ...]) -> str:
    """What a name starts with up to a dash."""
    return name.partition("-")[0] if name.partition("-")[0] in heads else ""
