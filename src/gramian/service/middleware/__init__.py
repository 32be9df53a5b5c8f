"""ASGI middleware: security headers, metrics and access log, errors, same origin, bearer tokens, body limits."""
