"""Subtracts a constant from the keys only where that is exact (Sterbenz), so no logit changes but by the shift."""

import torch
from torch import Tensor


def keys(k: Tensor) -> Tensor:
    """k − c, without any rounding, with one c per (batch, head, dimension); c is zero where no exact one exists.

    K − c is exact when c/2 ≤ K ≤ 2c for all keys of that dimension (the same with signs reversed): c must lie between
    half the largest and twice the smallest key. Taken is the mean, rounded to k's type, moved into that interval.
    Attention does not change when one vector is added to all keys, so c is a constant to autograd.
    """
    fixed = k.detach().float()
    sign = torch.where(fixed[:, :, :1] < 0, -1.0, 1.0)
    magnitude = fixed * sign  # of one sign throughout, or some are below zero and no c exists
    smallest, largest = magnitude.amin(2, keepdim=True), magnitude.amax(2, keepdim=True)
    mean = magnitude.mean(2, keepdim=True).to(k.dtype).float()
    c = torch.minimum(torch.maximum(mean, largest / 2), 2 * smallest)
    exact = (smallest > 0) & (largest <= 4 * smallest)
    c = torch.where(exact, c, 0.0) * sign
    return k - c.to(k.dtype)
