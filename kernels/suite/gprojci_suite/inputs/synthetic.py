"""Input sets made from a name: `synthetic:offset?ratio=300&logit_std=16&seed=1` and `synthetic:random`.

Every parameter may be left out. `random` draws q, k, v and do from a standard normal distribution. `offset` adds one
vector, drawn per head and `ratio` times as large as the keys' noise, to all keys, and scales q so that the logits
without that vector have the standard deviation `logit_std`: the case in which BF16 kernels lose dQ.
"""

import torch
from torch import Tensor

from gprojci_suite.inputs.sets import DTYPES, InputError, InputSet, LayerTensors

SHAPE: dict[str, float] = {"batch": 1, "heads": 2, "kv_heads": 0, "seq": 512, "seq_k": 0, "head_dim": 64, "causal": 1}
KINDS: dict[str, dict[str, float]] = {
    "offset": {"ratio": 300, "logit_std": 16, "seed": 1, **SHAPE},
    "random": {"logit_std": 1, "seed": 1, **SHAPE},
}
WHOLE = {"seed", *SHAPE}
MAY_BE_ZERO = {"seed", "kv_heads", "seq_k", "causal", "ratio"}
ELEMENTS_LIMIT = 2**28


def make(name: str) -> InputSet:
    """Make the set that `name` describes; raises InputError for an unknown kind, parameter or value."""
    kind, _, query = name.removeprefix("synthetic:").partition("?")
    if kind not in KINDS:
        raise InputError(f"{name}: unknown synthetic input; known: {', '.join(f'synthetic:{k}' for k in KINDS)}")
    values, dtype = dict(KINDS[kind]), torch.bfloat16
    for item in filter(None, query.split("&")):
        key, _, text = item.partition("=")
        if key == "dtype":
            dtype = _dtype(name, text)
        elif key in values:
            values[key] = _number(name, key, text)
        else:
            raise InputError(f"{name}: unknown parameter {key!r}; known: {', '.join([*values, 'dtype'])}")
    sizes = {key: int(values[key]) for key in ("batch", "heads", "seq", "head_dim")}
    sizes["kv_heads"] = int(values["kv_heads"]) or sizes["heads"]
    sizes["seq_k"] = int(values["seq_k"]) or sizes["seq"]
    if max(sizes["heads"] * sizes["seq"], sizes["kv_heads"] * sizes["seq_k"]) > ELEMENTS_LIMIT / (
        sizes["batch"] * sizes["head_dim"]
    ):
        raise InputError(f"{name}: oversized, more than {ELEMENTS_LIMIT} elements in a tensor")
    layer = _draw(sizes, values, dtype)
    provenance = {"generator": kind, "dtype": DTYPES[dtype], **{key: f"{value:g}" for key, value in values.items()}}
    return InputSet(name, {"S": layer}, bool(values["causal"]), sizes["head_dim"] ** -0.5, provenance)


def _draw(sizes: dict[str, int], values: dict[str, float], dtype: torch.dtype) -> LayerTensors:
    generator = torch.Generator().manual_seed(int(values["seed"]))

    def normal(heads: int, seq: int) -> Tensor:
        return torch.randn(sizes["batch"], heads, seq, sizes["head_dim"], generator=generator)

    k = normal(sizes["kv_heads"], sizes["seq_k"])
    k += values.get("ratio", 0.0) * normal(sizes["kv_heads"], 1)
    # Standard normal q and noise give logits of unit deviation after the scale of head_dim ** -0.5.
    q = values["logit_std"] * normal(sizes["heads"], sizes["seq"])
    v, do = normal(sizes["kv_heads"], sizes["seq_k"]), normal(sizes["heads"], sizes["seq"])
    return LayerTensors(q.to(dtype), k.to(dtype), v.to(dtype), do.to(dtype))


def _dtype(name: str, text: str) -> torch.dtype:
    for dtype, known in DTYPES.items():
        if text == known:
            return dtype
    raise InputError(f"{name}: dtype must be bfloat16 or float16, got {text!r}")


def _number(name: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"{name}: {key} must be a number, got {text!r}") from error
    if not 0 <= value < 2**31 or (value == 0 and key not in MAY_BE_ZERO) or (key in WHOLE and value != int(value)):
        raise InputError(f"{name}: {key} is out of range: {text}")
    return value
