# The service in a container. Models are mounted, not built in:
#
#   docker build --tag gramian .
#   docker run --read-only --tmpfs /tmp --volume "$PWD/my-model:/models/my-model:ro" --publish 8000:8000 gramian /models/my-model
#
# scripts/check_image.py runs the same steps without a daemon.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY benchmarks/papers benchmarks/papers
COPY src src
RUN python -m venv /opt/gramian \
 && /opt/gramian/bin/pip install --no-cache-dir --constraint constraints.txt '.[serve]'

FROM python:3.13-slim
COPY --from=build /opt/gramian /opt/gramian
# Compiled kernels are cached in /tmp, a tmpfs: the file system of the container is read-only.
ENV PATH=/opt/gramian/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/tmp/numba
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin gramian
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
ENTRYPOINT ["gramian", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--help"]
