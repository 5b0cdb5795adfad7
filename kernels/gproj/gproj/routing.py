"""Send torch's scaled_dot_product_attention here, for models whose source one does not edit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from gproj.api import attention
from gproj.arguments import UnsupportedInput
from gproj.backends import AUTO
from gproj.problem import GPROJ


@contextmanager
def routed_sdpa(
    *, method: str = GPROJ, backend: str = AUTO, deterministic: bool = False, strict: bool = True
) -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention is computed by `gproj.attention`.

    Args:
        method: as for `attention`, and so are backend and deterministic.
        backend: see there.
        deterministic: see there.
        strict: raise on calls that `attention` does not compute (a mask, dropout, other dtypes, is_causal with
            seq_q != seq_k, where torch aligns the mask to the top left); False hands those calls to torch.

    Raises:
        UnsupportedInput: from the call within, where `strict`.
    """
    with _Routed(method, backend, deterministic, strict):
        yield


class _Routed(TorchFunctionMode):
    def __init__(self, method: str, backend: str, deterministic: bool, strict: bool) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"method": method, "backend": backend, "deterministic": deterministic}
        self.strict = strict

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        try:
            return _attention(*args, **kwargs, settings=self.settings)
        except UnsupportedInput:
            if self.strict:
                raise
            return func(*args, **kwargs)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    settings: dict[str, Any],
) -> Tensor:
    if attn_mask is not None:
        raise UnsupportedInput(
            "scaled_dot_product_attention was called with attn_mask; only is_causal is computed here"
        )
    if dropout_p:
        raise UnsupportedInput(f"scaled_dot_product_attention was called with dropout_p={dropout_p}; set it to 0")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise UnsupportedInput(
            f"is_causal with {query.shape[-2]} queries and {key.shape[-2]} keys is aligned to the top left by torch; "
            "gproj.attention aligns it to the bottom right"
        )
    if not enable_gqa and query.dim() == 4 and query.shape[1] != key.shape[1]:
        raise UnsupportedInput(f"{query.shape[1]} query heads over {key.shape[1]} key heads need enable_gqa=True")
    return attention(query, key, value, causal=is_causal, softmax_scale=scale, **settings)
