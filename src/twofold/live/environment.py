"""What of this environment a program is given that others wrote, or that opens what they made.

A list of what they need, since a list of what is secret is never whole. Keys of hosted models, of clouds and
of registries stay with who asks for them by name; what a wildcard lets through is still kept back when its
name says that it is one.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

NEEDED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("TMPDIR", "TEMP", "TMP", "XDG_*_HOME", "XDG_RUNTIME_DIR"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHON*", "COVERAGE_*"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "CC", "CXX", "CPATH", "LIBRARY_PATH", "MALLOC_*"),
    *("CUDA_*", "NVIDIA_*", "CUBLAS_*", "CUDNN_*", "ROCR_*", "ROCM_*", "HIP_*", "HSA_*"),
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "VECLIB_*"),
    *("NCCL_*", "RCCL_*", "GLOO_*", "UCX_*", "FI_*", "OFI_*", "IBV_*"),
    *("TORCH*", "PYTORCH_*", "TRITON_*", "XLA_*", "JAX_*", "TOKENIZERS_PARALLELISM"),
    # Not all of `TF_`: Terraform's are called so too, and hold passwords.
    *("TF_CPP_*", "TF_XLA_*", "TF_ENABLE_*", "TF_GPU_*", "TF_NUM_*", "TF_FORCE_*"),
    *("HF_HOME", "HF_HUB_*", "HF_DATASETS_*", "HF_ENDPOINT", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_*"),
    *("VLLM_*", "SGLANG_*", "GGML_*", "LLAMA_*"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    # By these a queue finds what its jobs have started in states of their own.
    *("TWOFOLD_QUEUE", "TWOFOLD_JOB", "TWOFOLD_ATTEMPT"),
)
# In a name that a wildcard lets through; a personal access token is a word of its own, since `PATH` is none.
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "DSN")
SECRET_WORD = "PAT"


def needed(whole: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a program of others needs, whatever it is."""
    return {name: value for name, value in whole.items() if is_needed(name)}


def is_needed(name: str) -> bool:
    """Whether a variable is given to every program that is started."""
    if name in NEEDED:
        return True
    said = name.upper()
    if any(word in said for word in SECRET) or SECRET_WORD in said.split("_"):
        return False
    return any(fnmatchcase(name, pattern) for pattern in NEEDED)
