"""Traces on their way to a collector, in batches, from a thread of the library's own."""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import urlsplit

from tensorfold.errors import ConfigError
from tensorfold_extra_otel.traces import RequestTraces

__all__ = ["exporting"]

SECONDS = 3.0
"""That a batch may take; the server's end waits for the last one."""

PATH = "/v1/traces"
"""Where OTLP collectors take traces, when the endpoint names no path."""


def exporting(endpoint: str, service: str) -> RequestTraces:
    """An observer whose spans are sent to the collector; the standard OTEL_ variables add headers and the like.

    Raises:
        ConfigError: the endpoint is no URL, or the library is not installed, and traces were asked for.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"--otel-endpoint is {endpoint}, and traces need opentelemetry: pip install 'tensorfold[otel]'"
        ) from error
    number = version("tensorfold")
    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.version": number}))
    exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=SECONDS)
    # What still waits is sent when the process ends: the provider sees to it.
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return RequestTraces(provider.get_tracer("tensorfold", number))


def traces_url(endpoint: str) -> str:
    """The URL that takes traces.

    Raises:
        ConfigError: the endpoint is no URL.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--otel-endpoint is {endpoint!r}, and must be the URL of a collector: http://localhost:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{PATH}"
