"""Prometheus metrics of the service."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)  # seconds


class Metrics:
    """The metrics of one application, in a registry of its own.

    Parameters
    ----------
    is_shared
        Whether several processes count together, in files of the folder that `METRICS_FOLDER` names. The variable must be set
        before this module is imported.
    """

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("gramian_requests", "Responses by route and status", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "gramian_request_seconds",
            "Seconds from a request to the end of its response",
            ["route"],
            registry=registry,
            buckets=LATENCY_BUCKETS,
        )
        self.lists = Counter("gramian_lists", "Recommendation lists returned", ["model"], registry=registry)
        self.reloads = Counter("gramian_reloads", "Models replaced or found broken", ["model", "result"], registry=registry)
        pending = "Events and deletions in the log that the served model has not learned yet"
        self.pending_events = Gauge("gramian_pending_events", pending, ["model"], registry=registry, multiprocess_mode="sum")
        lag = "Seconds that the oldest of them has waited"
        self.update_lag = Gauge("gramian_update_lag_seconds", lag, ["model"], registry=registry, multiprocess_mode="sum")
        self.applied_events = Counter("gramian_applied_events", "Events and deletions applied", ["model"], registry=registry)
        self.updates = Counter("gramian_updates", "Updates of models by events", ["model", "result"], registry=registry)
        self.skipped_lines = Counter("gramian_skipped_lines", "Lines of followed files that are no events", registry=registry)

    def render(self) -> bytes:
        """Return the metrics as text; those that processes share are summed, processes that have ended included."""
        if not self.is_shared:
            return generate_latest(self.registry)
        summed = CollectorRegistry()
        MultiProcessCollector(summed)
        return generate_latest(summed)
