"""Puts a CPU PJRT plugin in the place of libtpu, in memory, without a compiler.

A PJRT plugin is a table of function pointers. torch_tpu takes the table's address from libtpu when it is imported,
which `import torch` does, perhaps long before accelhub. So the table is not replaced: the CPU plugin's entries are
written over libtpu's, before the first tensor makes torch_tpu use them.

Offsets are those of `pjrt_c_api.h`, whose layout only grows (PJRT C API 0.x: struct_size, extension_start, version
(struct of 24 bytes), then one pointer each).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

from accelhub.errors import DeviceError

_POINTER: Final = ctypes.sizeof(ctypes.c_void_p)
_EXTENSION_START: Final = 8
_FIRST_FUNCTION: Final = 40
_CLIENT_CREATE: Final = _FIRST_FUNCTION + 10 * _POINTER
_TPU_TOPOLOGY: Final = 16
"""PJRT_Extension_Type_TpuTopology."""
_TOPOLOGY_COUNTS: Final = range(7, 16)
"""Slots of that extension that answer with one count: processes, chips, cores, and each of them per another."""

_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _NamedValue(ctypes.Structure):
    """PJRT_NamedValue holding an int64."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("value", ctypes.c_int64),
        ("value_size", ctypes.c_size_t),
    )


class _ClientCreateArgs(ctypes.Structure):
    """The head of PJRT_Client_Create_Args."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("create_options", ctypes.c_void_p),
        ("num_options", ctypes.c_size_t),
    )


class _CountArgs(ctypes.Structure):
    """Arguments of the counting functions of the TpuTopology extension."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("topology", ctypes.c_void_p), ("count", ctypes.c_int32))


class _Extension(ctypes.Structure):
    """PJRT_Extension_Base, followed by the extension's function pointers."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("slots", ctypes.c_void_p * 31),
    )


_alive: list[Any] = []
"""What the tables point to; it must live as long as the process."""


def overlay(target: str, source: str) -> None:
    """Write the PJRT table of the library `source` over the one of `target`.

    Raises:
        DeviceError: a library is no PJRT plugin, or its memory cannot be written.
    """
    source_table, target_table = _table(source), _table(target)
    size = min(_size(source_table), _size(target_table))
    table = ctypes.create_string_buffer(ctypes.string_at(source_table, size), size)
    base = ctypes.addressof(table)
    _write_pointer(base + _CLIENT_CREATE, _client_create(base))
    _write_pointer(base + _EXTENSION_START, _tpu_topology(base))
    ctypes.c_size_t.from_address(base).value = size
    _make_writable(target_table, size)
    ctypes.memmove(target_table, base, size)
    _alive.append(table)


def _client_create(table: int) -> int:
    """PJRT_Client_Create with an option that a CPU client knows, in place of torch_tpu's own."""
    original = _Function(_pointer(table + _CLIENT_CREATE))
    name = b"cpu_device_count"
    option = _NamedValue(ctypes.sizeof(_NamedValue), None, name, len(name), 1, 1, 1)

    def create(address: int) -> int | None:
        args = _ClientCreateArgs.from_address(address)
        args.create_options, args.num_options = ctypes.addressof(option), 1
        created: int | None = original(address)
        return created

    return _keep(_Function(create), original, option)


def _tpu_topology(table: int) -> int:
    """A TpuTopology extension for one chip of one core, in front of the extensions that are there."""

    def one(address: int) -> None:
        _CountArgs.from_address(address).count = 1

    extension = _Extension(ctypes.sizeof(_Extension), _TPU_TOPOLOGY, _pointer(table + _EXTENSION_START))
    answer = _keep(_Function(one), extension)
    for slot in _TOPOLOGY_COUNTS:
        extension.slots[slot] = answer
    return ctypes.addressof(extension)


def _keep(function: Any, *others: Any) -> int:
    _alive.extend((function, *others))
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None  # noqa: S101 - a function's address
    return address


def _table(path: str) -> int:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        library.GetPjrtApi.restype = ctypes.c_void_p
        address: int = library.GetPjrtApi()
    except (OSError, AttributeError) as error:
        raise DeviceError(f"cannot emulate: {path} is no PJRT plugin ({error})") from error
    _alive.append(library)
    return address


def _make_writable(address: int, size: int) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    start = address - address % page
    libc = ctypes.CDLL(None, use_errno=True)
    read_write = 0x1 | 0x2
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(address + size - start), read_write):
        reason = os.strerror(ctypes.get_errno())
        raise DeviceError(f"cannot emulate: this system does not let the table of PJRT functions be written ({reason})")


def _size(table: int) -> int:
    return ctypes.c_size_t.from_address(table).value


def _pointer(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _write_pointer(address: int, value: int) -> None:
    ctypes.c_void_p.from_address(address).value = value
