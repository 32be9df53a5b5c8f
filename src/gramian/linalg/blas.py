"""BLAS routines on parts of arrays, called without the interpreter lock.

SciPy's own wrappers hold the lock, so that two threads cannot multiply at the same time, and copy an array whose columns are
not adjacent. These calls take the addresses and leading dimensions that BLAS itself takes, from the library that SciPy brings.
All arrays are in Fortran order here; a matrix in C order is its transpose.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.linalg import cython_blas

PREFIXES = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}
N_ARGUMENTS = {"gemm": 13, "trmm": 11}  # of the Fortran routines, all of them addresses


@cache
def load_routine(name: str) -> Callable[..., None]:
    """Return a BLAS routine such as sgemm, by its address in SciPy's library."""
    capsule = cython_blas.__pyx_capi__[name]
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    routine: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * N_ARGUMENTS[name[1:]])(
        get_pointer(capsule, get_name(capsule))
    )
    return routine


def integer(value: int) -> object:
    return ctypes.byref(ctypes.c_int(value))


def leading_dimension(matrix: np.ndarray) -> object:
    """The distance between two columns of a matrix in Fortran order. Rows must be adjacent."""
    assert matrix.strides[0] == matrix.itemsize or matrix.shape[0] == 1
    return integer(max(matrix.strides[1] // matrix.itemsize, matrix.shape[0], 1))


def subtract_product(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """c −= aᵀ · b in place, for parts of arrays in Fortran order."""
    prefix, scalar = PREFIXES[c.dtype]
    (m, n), k = c.shape, a.shape[0]
    minus_one, one = ctypes.byref(scalar(-1)), ctypes.byref(scalar(1))
    sizes = integer(m), integer(n), integer(k)
    left, right = (a.ctypes.data, leading_dimension(a)), (b.ctypes.data, leading_dimension(b))
    load_routine(prefix + "gemm")(b"T", b"N", *sizes, minus_one, *left, *right, one, c.ctypes.data, leading_dimension(c))


def multiply_triangular(factor: np.ndarray, b: np.ndarray, *, transpose: bool = False) -> None:
    """b = factor · b in place, or factorᵀ · b, for a lower triangular factor and parts of arrays in Fortran order."""
    prefix, scalar = PREFIXES[b.dtype]
    sizes, one = (integer(b.shape[0]), integer(b.shape[1])), ctypes.byref(scalar(1))
    left, right = (factor.ctypes.data, leading_dimension(factor)), (b.ctypes.data, leading_dimension(b))
    load_routine(prefix + "trmm")(b"L", b"L", b"T" if transpose else b"N", b"N", *sizes, one, *left, *right)
