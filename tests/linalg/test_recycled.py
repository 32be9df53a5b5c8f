"""Memory that is used again: by the next array only, and only once nothing refers to the last."""

import numpy as np
import pytest

import gramian as gr
from gramian.linalg import recycled
from gramian.linalg.recycled import RecycledMemory, allocate, allocate_from, find_root


def take(memory, n_bytes):
    return memory.allocate(n_bytes, "an array", "Wait")


def address(array):
    return array.ctypes.data


def test_memory_is_used_again_when_the_last_view_is_gone():
    memory = RecycledMemory()
    first = take(memory, 8_000).view(np.float64).reshape(10, 100)
    row, at = first[3, 10:20], address(first)
    del first
    second = take(memory, 8_000)
    assert address(second) != at, "a view still needs it"
    del row
    third = take(memory, 8_000)
    assert address(third) == at
    assert not memory.spare
    assert np.shares_memory(find_root(third[2:5].view(np.uint8)), third)


def test_a_larger_array_gets_new_memory_and_a_little_larger_one_does_not():
    memory = RecycledMemory()
    at = address(take(memory, 100_000))
    assert address(take(memory, 104_000)) == at
    larger = take(memory, 200_000)
    larger[:] = 1
    assert not memory.spare, "memory that is too small for the model is freed"


def test_little_is_kept_and_it_can_be_cleared():
    memory = RecycledMemory()
    arrays = [take(memory, 1_000) for _ in range(3)]
    assert not memory.clear()
    for array in arrays:
        array[:] = 7
    del array
    arrays.clear()
    assert len(memory.spare) == recycled.MAX_SPARE
    assert memory.clear()
    assert not take(memory, 1_000).any()


def test_memory_that_is_being_cleared_is_not_handed_out(monkeypatch):
    memory, handed_out = RecycledMemory(), []
    take(memory, 1_000)
    frombuffer = np.frombuffer

    def take_meanwhile(*arguments):
        handed_out.append(memory.take())
        return frombuffer(*arguments)

    monkeypatch.setattr(recycled.np, "frombuffer", take_meanwhile)
    assert memory.clear()
    assert handed_out == [None]
    assert len(memory.spare) == 1


def test_matrices_are_made_there_within_the_block_alone():
    memory = RecycledMemory()
    with allocate_from(memory):
        inside = allocate(10, np.dtype(np.float32), "an array", "Wait")
    del inside
    assert len(memory.spare) == 1
    allocate(10, np.dtype(np.float32), "an array", "Wait")
    assert len(memory.spare) == 1


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("gramian.linalg.memory.available_bytes", lambda: 10)
    with pytest.raises(gr.errors.NotEnoughMemory, match="an array"):
        take(RecycledMemory(), 1_000)
