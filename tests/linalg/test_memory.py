"""The limits on memory that a process has: of its address space, and of the containers around it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gramian.linalg import memory

GB = 10**9


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups in a folder; returns a function that writes one and one that enters them."""
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "address_space_bytes", lambda: [])
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Host", (), {"available": 100 * GB}))

    def write_group(path, limit, usage, cached=0):
        names = memory.V1_FILES if path.startswith("memory") else memory.V2_FILES
        folder: Path = tmp_path / "cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (limit, usage), strict=False):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")

    return write_group, (tmp_path / "own").write_text


def test_the_groups_own_limit_counts(groups):
    write_group, enter = groups
    enter("0::/service\n")
    write_group("service", 8 * GB, 3 * GB)
    assert memory.available_bytes() == 5 * GB
    write_group("service", "max", 3 * GB)
    assert memory.available_bytes() == 100 * GB
    write_group("service", 8 * GB, 9 * GB)
    assert memory.available_bytes() == 0


def test_a_group_around_it_may_be_fuller(groups):
    write_group, enter = groups
    enter("0::/pods/pod1/container\n")
    write_group("pods/pod1/container", "max", 1 * GB)
    write_group("pods/pod1", 10 * GB, 2 * GB)
    write_group("pods", 20 * GB, 19 * GB)
    write_group("pods/pod2", 1 * GB, 1 * GB)  # not around it
    assert memory.available_bytes() == 1 * GB


def test_a_container_sees_its_own_group_as_the_root(groups):
    write_group, enter = groups
    write_group("", 4 * GB, 1 * GB)
    enter("0::/\n")
    assert memory.available_bytes() == 3 * GB
    enter("0::/docker/0123\n")  # the path outside, which is not visible here
    assert memory.available_bytes() == 3 * GB


def test_groups_of_version_1_count(groups):
    write_group, enter = groups
    enter("5:cpu,cpuacct:/a\n4:memory:/slice/job\n0::/\n")
    write_group("memory/slice/job", 9223372036854771712, 1 * GB)  # no limit
    write_group("memory/slice", 6 * GB, 2 * GB)
    assert memory.available_bytes() == 4 * GB
    write_group("memory", 3 * GB, 2 * GB)
    assert memory.available_bytes() == 1 * GB


def test_groups_of_version_2_beside_version_1_count(groups):
    write_group, enter = groups
    enter("4:memory:/\n0::/job\n")
    write_group("unified/job", 2 * GB, 1 * GB)
    assert memory.available_bytes() == 1 * GB


def test_cached_files_do_not_count_as_used(groups):
    write_group, enter = groups
    enter("0::/job\n")
    write_group("job", 4 * GB, 3 * GB, cached=2 * GB)
    assert memory.available_bytes() == 3 * GB


@pytest.mark.parametrize("text", ["", "0::/none\n", "4:memory:/none\n"])
def test_without_groups_the_host_counts(groups, text):
    groups[1](text)
    assert memory.available_bytes() == 100 * GB


ADDRESS_SPACE = """
import resource, psutil
import gramian as gr
from gramian.linalg.memory import available_bytes
from gramian.linalg.symmetric import Symmetric
used = psutil.Process().memory_info().vms
resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000, used + 300_000_000))
assert 0 < available_bytes() <= 300_000_000, available_bytes()
try:
    Symmetric.empty(20_000)
except gr.errors.NotEnoughMemory as error:
    print(error)
"""


def test_a_limited_address_space_is_seen_before_it_is_exceeded():
    code = textwrap.dedent(ADDRESS_SPACE)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "of free memory for" in run.stdout


def test_a_limit_of_ones_own_counts_from_what_is_resident(monkeypatch):
    monkeypatch.setattr(memory, "container_bytes", lambda: [])
    monkeypatch.setattr(memory, "address_space_bytes", lambda: [])
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Host", (), {"available": 100 * GB}))
    resident = 2 * GB
    monkeypatch.setattr(memory.psutil.Process, "memory_info", lambda process: type("Info", (), {"rss": resident, "vms": 0}))
    with memory.limit_memory(3 * GB):
        assert memory.available_bytes() == 3 * GB
        resident = 4 * GB
        assert memory.available_bytes() == 1 * GB
        with memory.limit_memory(None):
            assert memory.available_bytes() == 100 * GB
        resident = 9 * GB
        assert memory.available_bytes() == 0
    assert memory.available_bytes() == 100 * GB
