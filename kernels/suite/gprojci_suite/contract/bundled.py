"""The captures that come with the ruler: their names and their files' bytes, kept xz-compressed in the package."""

import lzma
from importlib import resources

from gprojci_suite.contract.input_file import SUFFIX
from gprojci_suite.contract.tensor_file import MalformedFile

_SUFFIX = f"{SUFFIX}.xz"


def names() -> list[str]:
    """Names of the bundled input sets, sorted."""
    folder = resources.files("gprojci_suite") / "captures"
    return sorted(item.name.removesuffix(_SUFFIX) for item in folder.iterdir() if item.name.endswith(_SUFFIX))


def read(name: str) -> bytes:
    """The safetensors file of the bundled set `name`, one of `names()`; raises MalformedFile where it is damaged."""
    compressed = (resources.files("gprojci_suite") / "captures" / f"{name}{_SUFFIX}").read_bytes()
    try:
        return lzma.decompress(compressed, lzma.FORMAT_XZ)
    except lzma.LZMAError as error:
        raise MalformedFile(f"the bundled {name}{_SUFFIX} is damaged ({error}); install gprojci-suite again") from error
