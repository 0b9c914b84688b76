"""What the server tells of itself: structured logs and Prometheus metrics. Neither ever holds keys, prompts or replies."""

from tensorfold.observe.logs import LogFormat, configure_logs
from tensorfold.observe.metrics import Metrics

__all__ = ["LogFormat", "Metrics", "configure_logs"]
