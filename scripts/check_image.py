"""Check the Dockerfile: build and run the image where a Docker daemon is available, else check its rules and its files.

    python scripts/check_image.py

Without a daemon, the steps that `RUN pip install` and `HEALTHCHECK` stand for are those of check_package.py, which installs the
wheel in a clean environment, serves a model and asks /ready.
"""

import fnmatch
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def parse_instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    lines = re.sub(
        r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    ).splitlines()
    return [(word, rest.strip()) for line in lines if line.strip() for word, _, rest in [line.strip().partition(" ")]]


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps a path out of the build: the last pattern that matches it or a folder of it decides."""
    parts = path.split("/")
    paths = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    ignored = False
    for pattern in patterns:
        if any(fnmatch.fnmatch(each, pattern.removeprefix("!")) for each in paths):
            ignored = not pattern.startswith("!")
    return ignored


def check_rules() -> None:
    """Check what the image promises: nobody is root, models are mounted, its health is known, and its files exist."""
    instructions = parse_instructions((ROOT / "Dockerfile").read_text())
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    last_stage = instructions[max(n for n, (word, _) in enumerate(instructions) if word == "FROM") :]
    words = dict(last_stage)
    assert words["USER"].isdigit(), "the service runs as a numbered user: Kubernetes checks that it is not root"
    assert int(words["USER"]) >= 1000, "not root, nor a user of the system"
    assert "/ready" in words["HEALTHCHECK"]
    assert words["ENTRYPOINT"].startswith("["), "exec form, so that the service gets the signal to stop"
    assert all(":" in rest and ":latest" not in rest for word, rest in instructions if word == "FROM"), "a pinned base image"
    assert "NUMBA_CACHE_DIR=/tmp" in words["ENV"], "the file system is read-only"
    for word, rest in instructions:
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), f"COPY of {source}, which does not exist"
                assert not is_ignored(source, ignore), f".dockerignore keeps {source} out"


def has_daemon() -> bool:
    """Whether a Docker daemon answers."""
    return (
        shutil.which("docker") is not None
        and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    )


def main() -> None:
    check_rules()
    if not has_daemon():
        print("the Dockerfile keeps its rules; no Docker daemon, so the image was not built")
        return
    subprocess.run(["docker", "build", "--quiet", "--tag", "gramian-check", str(ROOT)], check=True)
    command = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", "gramian-check"]
    help_text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "gramian serve" in help_text
    print("the image was built and runs read-only")


if __name__ == "__main__":
    main()
