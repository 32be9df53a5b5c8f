"""The HTTP service: an ASGI application that recommends from saved models, and the page that shows what they recommend."""

import logging

SERVICE_LOG = logging.getLogger("gramian.serve")  # one line per request, and one per replaced model

# The variable by which Prometheus' client counts in files that processes share.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
