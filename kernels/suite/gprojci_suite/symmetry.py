"""The symmetry suite: how far gradients move under shifts that must not move them. Needs no reference, so any length.

With S = scale·QKᵀ, P = softmax(S), dP = dO·Vᵀ, D = rowsum(P∘dP), dS = P∘(dP − D), and every row of P summing to one:

- K → K + 1cᵀ adds scale·(q_i·c) to every logit of row i: P, dP and dS stay, and dQ_i = scale·Σ_j dS_ij (K_j + c)
  stays too, since Σ_j dS_ij = D_i − D_i·1 = 0. `dq_key_shift`.
- V → V + 1cᵀ adds dO_i·c to every dP_ij of row i and to D_i: dS stays, and with it dQ and dK. `dq_value_shift`,
  `dk_value_shift`. (O moves by c, as it must.)
- Σ_j dK_j = scale·Σ_i (Σ_j dS_ij) Q_i = 0: the gradients of all keys of a head sum to zero. `dk_row_sum`, taken on the
  inputs as they are. Independent roundings of the elements of dK alone make ‖Σ_j dK_j‖ about as large as their norm,
  0.17% of ‖dK‖ for a BF16 result: that is its floor. Two results that differ by less than it before they are rounded
  mostly round alike, so a movement can be far below 0.17%; √2 · 0.17% is what a backend may show without any leak.

A shift is a test only if it is exact: K and K + c must both be what the backend reads. So keys and values are first
centred and rounded to a grid of their own, per batch, head and dimension: multiples n·g of a power of two g, |n| ≤ 32.
The shift is 224·g in every dimension, so that K + c = (n ± 224)·g is an integer of at most eight bits times a power of
two, which bfloat16 and float16 hold without rounding. The grid changes the input (it is as good an input as another),
the shift changes no bit of it. 224·g is 7 to 14 times the largest deviation of a key from the mean.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gprojci_suite.contract.symmetry import Symmetry, SymmetryResponse, SymmetrySummary
from gprojci_suite.contract.vocabulary import RESPONSES, Response
from gprojci_suite.inputs import InputError
from gprojci_suite.member import Case, Member
from gprojci_suite.one_thread import one_thread
from gprojci_suite.session import Session

LEVELS = 32
EXACT_INTEGERS = 256
"""All integers up to this are exact in bfloat16 (eight bits with the implicit one), and so in float16."""
VANISHING = 1e-4


@dataclass(frozen=True)
class Probe:
    """The cases of one layer: as it is, on the grid, and on the grid with keys or values shifted."""

    plain: Case
    grid: Case
    keys: Case
    values: Case


@dataclass(frozen=True)
class Moved:
    """Norm of a movement or sum, and of the tensor it is held against, (batch, heads) each."""

    movement: Tensor
    norm: Tensor


def on_grid(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x centred and rounded to a grid, the same plus a constant per batch, head and dimension), both exact.

    Args:
        x: keys or values (batch, heads, seq, head_dim), bfloat16 or float16.

    Raises:
        InputError: when the values are so small or large that the element type cannot hold the shifted ones.
    """
    wide = x.double()
    mean = wide.mean(dim=2, keepdim=True)
    largest = (wide - mean).abs().amax(dim=2, keepdim=True)
    step = torch.where(largest > 0, torch.exp2((largest / LEVELS).log2().ceil()), 1.0)
    base = ((wide - mean) / step).round() * step
    # The shift points where the tensor's own offset points.
    shifted = base + torch.where(mean < 0, -step, step) * (EXACT_INTEGERS - LEVELS)
    if not (torch.equal(base.to(x.dtype).double(), base) and torch.equal(shifted.to(x.dtype).double(), shifted)):
        raise InputError(f"its keys or values are out of the range in which {x.dtype} can be shifted exactly")
    return base.to(x.dtype), shifted.to(x.dtype)


def probe(case: Case) -> Probe:
    """The four cases of a layer; raises InputError."""
    try:
        (k, k_shifted), (v, v_shifted) = on_grid(case.tensors.k), on_grid(case.tensors.v)
    except InputError as error:
        raise InputError(f"{case.name}: {error}") from error
    grid = replace(case, tensors=replace(case.tensors, k=k, v=v))
    return Probe(
        case,
        grid,
        keys=replace(case, tensors=replace(grid.tensors, k=k_shifted)),
        values=replace(case, tensors=replace(grid.tensors, v=v_shifted)),
    )


def measure(session: Session, cases: Mapping[str, Mapping[str, Case]], progress: Callable[[str], None]) -> Symmetry:
    """Every backend on every case.

    Args:
        session: the started session.
        cases: by name of the input set or shape, then by layer.
        progress: called with one line per step.

    Raises:
        InputError: a case cannot be shifted exactly.
    """
    responses: list[SymmetryResponse] = []
    members = [member for member in session.members if not member.launch.control]
    total, done = len(cases) * len(members), 0
    for name, layers in cases.items():
        if session.over(f"symmetry of {name}"):
            break
        probes = {layer: probe(case) for layer, case in layers.items()}
        for member in members:
            done += 1
            if member.process is not None:
                responses += _of_backend(session, member, name, probes)
            progress(f"symmetry {member.launch.label} {name} {done}/{total} {member.status}")
    return Symmetry(tuple(responses), tuple(summarise(responses)))


@one_thread()
def responses_of(results: Mapping[str, Mapping[str, Tensor]]) -> dict[Response, Moved]:
    """The four responses of one layer from its results on the cases `plain`, `grid`, `keys` and `values`."""
    wide = {case: {name: tensor.double() for name, tensor in found.items()} for case, found in results.items()}
    grid, plain = wide["grid"], wide["plain"]["dk"]
    return {
        "dq_key_shift": Moved(_norm(wide["keys"]["dq"] - grid["dq"]), _norm(grid["dq"])),
        "dq_value_shift": Moved(_norm(wide["values"]["dq"] - grid["dq"]), _norm(grid["dq"])),
        "dk_value_shift": Moved(_norm(wide["values"]["dk"] - grid["dk"]), _norm(grid["dk"])),
        "dk_row_sum": Moved(plain.sum(dim=2).norm(dim=-1), _norm(plain)),
    }


def summarise(found: Sequence[SymmetryResponse]) -> list[SymmetrySummary]:
    """One line per (backend, revision, case, response)."""
    groups: dict[tuple[str, str, str, str], list[SymmetryResponse]] = {}
    for item in found:
        groups.setdefault((item.backend, item.revision, item.case, item.response), []).append(item)
    result = []
    for members in groups.values():
        counted = [item for item in members if not item.vanishing]
        worst = max(counted, key=lambda item: item.value, default=None)
        first = members[0]
        result.append(
            SymmetrySummary(
                backend=first.backend,
                revision=first.revision,
                case=first.case,
                response=first.response,
                median=statistics.median(item.value for item in counted) if counted else math.nan,
                worst=worst.value if worst else math.nan,
                worst_slice=worst.slice if worst else "",
                slices=len(members),
                vanishing=len(members) - len(counted),
            )
        )
    return result


def _of_backend(session: Session, member: Member, name: str, probes: Mapping[str, Probe]) -> list[SymmetryResponse]:
    """All responses of one backend in one case, or none when it fails on the way."""
    layers: dict[str, dict[Response, Moved]] = {}
    for layer, cases in probes.items():
        results = {}
        for which in ("plain", "grid", "keys", "values"):
            computed = session.compute(member, getattr(cases, which))
            if computed is None:
                return []
            results[which] = computed
        layers[layer] = responses_of(results)
    found = []
    for response in RESPONSES:
        largest = max(float(moved[response].norm.nan_to_num(0.0).max()) for moved in layers.values())
        for layer, moved in layers.items():
            item = moved[response]
            for batch, head in ((b, h) for b in range(item.norm.shape[0]) for h in range(item.norm.shape[1])):
                norm, movement = float(item.norm[batch, head]), float(item.movement[batch, head])
                value = movement / norm if norm else math.nan
                found.append(
                    SymmetryResponse(
                        backend=member.launch.backend,
                        revision=member.launch.revision,
                        case=name,
                        slice=f"{layer}.b{batch}.h{head}",
                        response=response,
                        # What is not finite is the largest response there is; a zero tensor vanishes and has none.
                        value=math.inf if norm and not math.isfinite(value) else value,
                        vanishing=norm < VANISHING * largest or norm == 0,
                    )
                )
    return found


def _norm(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor.flatten(2), dim=-1)
    return norm
