"""Muon for the hidden matrices, AdamW for the rest, a linear warm-up for both, and QK-clip.

`torch.optim.Muon` goes matrix by matrix in small launches. On CUDA they are captured once and replayed as a graph, or
the host would set the time of a step, and of what the backends differ by nothing would be seen.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from gprojci_suite.contract.training import TrainingOptimizer
from gprojci_suite.environment import EnvironmentFault
from gprojci_suite.training.model import Block, Transformer

BETAS = (0.9, 0.95)
HIDDEN = ("q.weight", "k.weight", "v.weight", "out.weight", "up.weight", "down.weight")
BIASES = ("q.bias", "k.bias", "v.bias")


def check(settings: TrainingOptimizer) -> None:
    """Raise EnvironmentFault where torch has no Muon and the settings ask for it."""
    if settings.muon_rate is not None and not hasattr(torch.optim, "Muon"):
        raise EnvironmentFault(f"torch {torch.__version__} has no Muon; use torch 2.9 or newer, or --no-muon")


class Replayed:
    """The steps of an optimiser on CUDA, one graph from the second with the same rates on.

    A graph has what it was captured with: rates, and the places of parameters, gradients and state. So gradients are
    zeroed and never replaced, and a state is restored before the first step.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._rates: list[object] = []
        self._graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> None:
        """Take one step."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if rates != self._rates:
            self._rates, self._graph = rates, None
            self.optimizer.step()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self.optimizer.step()
        self._graph.replay()

    def zero_grad(self) -> None:
        """Zero all gradients where they are."""
        parameters = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)


class Optimizers:
    """Both optimisers of a model.

    Args:
        model: on its device.
        settings: rates and their like.
        replay: on CUDA, take Muon's steps as a graph.
    """

    def __init__(self, model: Transformer, settings: TrainingOptimizer, *, replay: bool = True) -> None:
        self.warm_up = settings.warm_up
        self.rates: list[tuple[dict[str, object], float]] = []
        hidden, biases, rest = _sorted(model)
        groups = [{"params": rest, "lr": settings.adamw_rate}]
        if biases:
            rate = settings.adamw_rate if settings.bias_rate is None else settings.bias_rate
            groups.append({"params": biases, "lr": rate})
        self.all: list[Optimizer] = []
        self._stepped: list[Optimizer | Replayed] = []
        on_cuda = rest[0].device.type == "cuda"
        if settings.muon_rate is None:
            groups.append({"params": hidden, "lr": settings.adamw_rate})
        else:
            muon = torch.optim.Muon(
                hidden, lr=settings.muon_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
            )
            self.all.append(muon)
            self._stepped.append(Replayed(muon) if on_cuda and replay else muon)
        adamw = torch.optim.AdamW(groups, betas=BETAS, weight_decay=settings.weight_decay, fused=on_cuda)
        self.all.append(adamw)
        self._stepped.append(adamw)
        self.rates = [(group, float(group["lr"])) for one in self.all for group in one.param_groups]

    def step(self, number: int) -> None:
        """Take step `number`, counted from 1."""
        share = min(1.0, number / self.warm_up) if self.warm_up else 1.0
        for group, rate in self.rates:
            group["lr"] = rate * share
        for one in self._stepped:
            one.step()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for one in self._stepped:
            one.zero_grad()

    def state(self) -> list[dict[str, object]]:
        """What `restore` takes."""
        return [one.state_dict() for one in self.all]

    def restore(self, state: list[dict[str, object]]) -> None:
        """Go on from a saved state."""
        for one, saved in zip(self.all, state, strict=True):
            one.load_state_dict(saved)
        groups = (group for one in self.all for group in one.param_groups)
        self.rates = [(group, rate) for group, (_, rate) in zip(groups, self.rates, strict=True)]


@torch.no_grad()
def clip_logits(block: Block, largest: Tensor, limit: float) -> None:
    """QK-clip (Kimi K2, MuonClip): scale the projections to q and k of a head whose largest logit is above the limit.

    Args:
        block: the layer.
        largest: largest absolute logit of each head, (heads,).
        limit: what it should not exceed; both projections are scaled by √(limit ÷ largest).
    """
    factor = (limit / largest.clamp(min=limit)).sqrt().repeat_interleave(block.q.out_features // block.heads)
    for projection in (block.q, block.k):
        projection.weight.mul_(factor[:, None])
        if projection.bias is not None:
            projection.bias.mul_(factor)


def _sorted(model: Transformer) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Hidden matrices, biases of q, k and v, and all other parameters."""
    hidden: list[Tensor] = []
    biases: list[Tensor] = []
    rest: list[Tensor] = []
    for name, parameter in model.named_parameters():
        inside = name.startswith("blocks.")
        kind = hidden if inside and name.endswith(HIDDEN) else biases if inside and name.endswith(BIASES) else rest
        kind.append(parameter)
    return hidden, biases, rest
