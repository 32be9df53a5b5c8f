"""How many arenas of glibc the threads of the service allocate from."""

import subprocess
import sys

import pytest

COUNT = """
import ctypes, threading
from gramian.service.server import use_one_arena
{setup}
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
barrier = threading.Barrier(8)

def allocate():
    barrier.wait()
    libc.malloc(ctypes.c_size_t(1_000))
    barrier.wait()

def count_arenas():
    libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
    libc.fflush(None)
    print("", flush=True)

count_arenas()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
count_arenas()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
@pytest.mark.parametrize(("setup", "grows"), [("use_one_arena()", False), ("", True)])
def test_new_threads_get_no_arenas_of_their_own(setup, grows):
    process = subprocess.run(
        [sys.executable, "-c", COUNT.format(setup=setup)], capture_output=True, text=True, timeout=300, check=True
    )
    before, after = (report.count("<heap nr=") for report in process.stdout.split("</malloc>")[:2])
    assert (after > before) == grows
