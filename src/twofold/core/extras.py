"""Optional libraries: asked for by the extra that brings them, before anything is started."""

from importlib.util import find_spec

from twofold.core.errors import MissingExtraError

MODULES = {
    "train": ("torch", "transformers", "tokenizers", "safetensors", "fsspec"),
    "live": ("aiohttp", "httptools", "psutil", "uvicorn", "uvloop"),
    "attribution": ("captum",),
    "tasks": ("lm_eval",),
    "ray": ("ray",),
    "xlsx": ("xlsxwriter",),
    "postgres": ("psycopg",),
    "sign": ("model_signing", "OpenSSL", "PyKCS11"),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}


def require_extra(*extras: str) -> None:
    """Raise MissingExtraError unless every library of these extras can be imported; imports none of them.

    >>> require_extra()
    """
    absent = {extra: [name for name in MODULES[extra] if find_spec(name) is None] for extra in extras}
    missing = {extra: names for extra, names in absent.items() if names}
    if missing:
        names = ", ".join(f"`{name}`" for group in missing.values() for name in group)
        raise MissingExtraError(
            f"{names} {'is' if names.count('`') == 2 else 'are'} not installed",
            hint=f"pip install 'twofold[{','.join(missing)}]'",
        )
