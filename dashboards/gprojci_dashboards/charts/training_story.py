"""A training run's log: the loss calm above, the attention gradient's error exploding below."""

from __future__ import annotations

from dataclasses import dataclass

from gprojci_dashboards import theme
from gprojci_dashboards.readable import percent
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "The loss looks fine. The gradient is not."


@dataclass(frozen=True)
class Record:
    """One capture step. Errors are fractions against float64, over all layers and heads."""

    step: int
    loss: float
    dq_error_worst: float
    dq_error_median: float
    key_offset: float  # largest ratio of the keys' common offset to their spread


@dataclass(frozen=True)
class TrainingData:
    """The records of one run, oldest first; `backend` is the one the run trained with."""

    records: tuple[Record, ...]
    backend: str


def figure(data: TrainingData) -> Sketch:
    """Two panels over the same steps."""
    steps = [record.step for record in data.records]
    calm, alarm, middle = theme.SERIES[5].light, theme.LIMIT.light, theme.SERIES[0].light
    chart = Sketch()
    chart.add_trace(
        scatter(
            x=steps,
            y=[record.loss for record in data.records],
            mode="lines+markers",
            line={"color": calm, "width": 2},
            marker={"size": 7},
            name="training loss",
            yaxis="y2",
            hovertemplate="step %{x}<br>loss %{y:.3f}<extra></extra>",
        )
    )
    for name, values, colour, dash, symbol in (
        ("dQ error, worst head", [record.dq_error_worst for record in data.records], alarm, "solid", "diamond"),
        ("dQ error, median layer", [record.dq_error_median for record in data.records], middle, "dash", "square"),
    ):
        chart.add_trace(
            scatter(
                x=steps,
                y=values,
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"size": 8, "symbol": symbol},
                name=name,
                text=[
                    f"{percent(value)}<br>keys' offset {record.key_offset:.1f}× their spread"
                    for value, record in zip(values, data.records, strict=True)
                ],
                hovertemplate=f"step %{{x}}<br>{name} %{{text}}<extra></extra>",
            )
        )
    errors = [value for record in data.records for value in (record.dq_error_worst, record.dq_error_median)]
    ticks, labels = theme.log_ticks(errors)
    theme.styled(chart, height=420)
    chart.update_layout(
        xaxis=theme.axis("training step", anchor="y", tickformat=",d"),
        yaxis=theme.axis(
            f"dQ error of {data.backend}",
            type="log",
            tickvals=ticks,
            ticktext=labels,
            range=theme.log_range(errors, pad=0.06),
            domain=[0, 0.58],
        ),
        yaxis2=theme.axis("loss", domain=[0.68, 1.0], rangemode="tozero", anchor="x", side="left"),
        hovermode="x",
    )
    return chart
