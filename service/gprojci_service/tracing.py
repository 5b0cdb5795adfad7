"""Traces by OpenTelemetry, for operators who collect them: requests, statements, messages, tasks, what GitHub is asked.

The interface (`opentelemetry-api`) is always there and does nothing by itself; what sends comes with the extra
`tracing`. OpenTelemetry's own variables say where to, how much and under which name:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gprojci_service.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.trace import Span
    from sqlalchemy import Engine

_ASKED = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NEEDS = ("sdk", "exporter.otlp.proto.http", "instrumentation.fastapi", "instrumentation.sqlalchemy")
_UNTOLD = "healthz,readyz,metrics"  # asked all the time


def wanted() -> bool:
    """Whether the environment names a collector.

    Raises:
        ConfigurationError: it does, and what sends is not installed.
    """
    asked = next((name for name in _ASKED if os.environ.get(name)), None)
    if asked is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    absent = [name for name in (*_NEEDS, "instrumentation.celery") if not _is_there(f"opentelemetry.{name}")]
    if absent:
        raise ConfigurationError(
            f"{asked}: no traces without opentelemetry's {', '.join(absent)}; "
            "`pip install 'gprojci-service[tracing]'`, or unset it"
        )
    return True


def start(program: str, engine: Engine, app: FastAPI | None = None) -> None:
    """Has this process send its spans to the collector, as the service `program` unless `OTEL_SERVICE_NAME` says so.

    For a process of its own, once it will fork no more. What goes out are paths, statements without their values, names
    of tasks and what is noted for the logs (`gprojci.job`); never a body, a token or a query, which may hold a secret.
    """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    os.environ.setdefault("OTEL_SERVICE_NAME", program)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    # It has not been told of SQLAlchemy 2.1, whose events are as they were.
    SQLAlchemyInstrumentor().instrument(engine=engine, skip_dep_check=True)
    CeleryInstrumentor().instrument(raise_exception_on_conflict=True)  # type: ignore[no-untyped-call]
    if app is not None:
        untold = os.environ.get("OTEL_PYTHON_FASTAPI_EXCLUDED_URLS", _UNTOLD)
        FastAPIInstrumentor.instrument_app(
            app, excluded_urls=untold, exclude_spans=["receive", "send"], server_request_hook=_forget_the_query
        )


def stop() -> None:
    """Sends what waits, for a process that ends without Python's own end."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()


def _forget_the_query(span: Span, _scope: Any) -> None:
    """GitHub sends people back with what their sign-in, or an App's private key, is fetched with."""
    for name, value in dict(getattr(span, "attributes", None) or {}).items():
        if name.startswith(("http.", "url.")) and isinstance(value, str):
            span.set_attribute(name, "" if name == "url.query" else value.partition("?")[0])


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor what it lies in
        return False
