"""The paper authors' ``abide.npy``: a pickled dictionary of arrays, read without running the pickle.

Its keys are ``timeseires`` (their spelling; (n, V, T), the first 100 volumes), ``corr`` and ``pcorr`` ((n, V, V),
Ledoit-Wolf correlations of the whole series after arctanh, zero diagonal), ``label`` and ``site``.
There ``label`` is 0 for autism and 1 for controls; here ``diagnosis`` is 1 for autism. It holds no subject
ids, and the order of its subjects is that of some folder once, so they are numbered.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bnt.errors import BadInput
from bnt.sources._names import parsing
from bnt.sources._scan import Content, Scan, as_numbers

LEVELS = {"diagnosis": {"0": "control", "1": "ASD"}}


def is_object_array(file: Path) -> bool:
    """Tell whether an ``.npy`` file holds a pickle; only its header is read."""
    with parsing(file, "an .npy file"), open(file, "rb") as stream:
        return _object_header(stream)


def _object_header(stream: Any) -> bool:
    if stream.read(6) != b"\x93NUMPY":
        return False
    stream.seek(0)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return bool(read(stream)[2].hasobject)


def read_authors(file: Path) -> dict[str, Any]:
    """Return the dictionary, its arrays checked against each other."""
    with parsing(file, "the authors' abide.npy"), open(file, "rb") as stream:
        if not _object_header(stream):
            raise BadInput(f"{file} is not a pickled dictionary: give it as a plain file of arrays.")
        try:
            content = read_inert(stream)
        except Refused as refusal:
            raise BadInput(
                f"{file} is a pickle that holds {refusal}, which plain arrays do not need: it was not run; "
                "save the arrays with numpy.savez instead."
            ) from refusal
    if not isinstance(content, dict) or "corr" not in content or "label" not in content:
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise BadInput(
            f"{file} is a pickle of other things ({keys[:80]}) than the authors' dictionary with corr and label: "
            "save the arrays with numpy.savez instead."
        )
    corr, label = np.asarray(content["corr"]), np.asarray(content["label"]).ravel()
    if corr.ndim != 3 or corr.shape[1] != corr.shape[2] or corr.shape[1] < 2 or len(label) != len(corr):
        raise BadInput(f"{file} has corr of shape {corr.shape} and {len(label)} labels: give (n, V, V) and n.")
    if label.dtype.kind not in "biuf" or not np.isin(label, (0, 1)).all():
        raise BadInput(f"{file} has labels other than 0 (autism) and 1 (control): give the authors' file.")
    checked: dict[str, Any] = {"corr": as_numbers(corr, file), "diagnosis": 1 - label.astype(int)}
    if "site" in content:
        site = [s.decode("latin1") if isinstance(s, bytes) else str(s) for s in np.asarray(content["site"]).ravel()]
        if len(site) != len(corr):
            raise BadInput(f"{file} has {len(site)} sites for {len(corr)} subjects: give the authors' file.")
        checked["site"] = site
    series = content.get("timeseires", content.get("timeseries"))
    if series is not None:
        series = as_numbers(np.asarray(series), file)
        if series.ndim != 3 or series.shape[:2] != corr.shape[:2]:
            raise BadInput(f"{file} has series of shape {series.shape} for corr of shape {corr.shape}.")
        checked["series"] = series
    return checked


def find_authors(file: Path, *, kind: str | None = None, content: str = "auto") -> tuple[list[Scan], str]:
    """Return the subjects of the file and the kind of their connectomes.

    The matrices of the file are taken (kind ``shrunk-z``), with the series kept beside them. Another
    kind, or ``content="series"``, computes it from the series, of which the file holds 100 volumes.
    A pickle cannot be read in parts: the whole file is held in memory, 0.8 GB for the 1,009 subjects.
    """
    held = read_authors(file)
    stored = content != "series" and kind in (None, "shrunk-z")
    if not stored and "series" not in held:
        raise BadInput(f"{file} holds no series to compute {kind or 'pearson'!r} from: use kind='shrunk-z'.", "kind")
    if not stored and content == "matrix":
        raise BadInput(
            f"{file} holds matrices of kind shrunk-z, not {kind!r}: use kind='shrunk-z' or content='series'.", "kind"
        )

    def load(i: int) -> Content:
        series = held["series"][i].T if "series" in held else None  # (T, V)
        return Content(series=series, matrix=held["corr"][i] if stored else None)

    scans = []
    for i in range(len(held["corr"])):
        columns = {"diagnosis": int(held["diagnosis"][i])}
        if "site" in held:
            columns["site"] = held["site"][i]
        scans.append(Scan(f"authors-{i + 1:04d}", file, partial(load, i), columns=columns))
    return scans, "shrunk-z" if stored else kind or "pearson"


class Refused(BadInput):
    """The pickle asks for something that plain arrays do not need."""


@dataclass(frozen=True)
class _Symbol:
    """A name such as ``numpy.dtype``: text, not the thing."""

    name: str


@dataclass
class _Dtype:
    """A dtype in the making: ``f8`` and, after BUILD, its byte order."""

    code: str
    order: str = "="

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise Refused("a structured dtype")
        if state[1] not in ("<", ">", "|", "="):
            raise Refused(f"the byte order {state[1]!r}")
        self.order = state[1]

    def plain(self) -> np.dtype:
        return np.dtype(self.order + self.code)


@dataclass
class _Array:
    """An array in the making; ``value`` is there after BUILD."""

    value: Any = None

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array state that numpy does not write")
        _, shape, dtype, fortran, data = state
        if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
            raise Refused(f"the shape {shape!r}")
        if not isinstance(dtype, _Dtype):
            raise Refused(f"the dtype {dtype!r}")
        if dtype.code.startswith("O"):
            if not isinstance(data, list) or len(data) != prod(shape):
                raise Refused("an array of objects whose length does not fit its shape")
            self.value = data[0] if shape == () else data
            return
        if not isinstance(data, bytes):
            raise Refused("array data that are not bytes")
        plain = dtype.plain()
        if len(data) != prod(shape) * plain.itemsize:
            raise Refused(f"{len(data)} bytes for an array of shape {shape} and type {plain}")
        self.value = np.frombuffer(data, plain).reshape(shape, order="F" if fortran else "C")


_RECONSTRUCT = {f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")}
_SCALAR = {f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")}
_FROMBUFFER = {f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")}
_KNOWN = {*_RECONSTRUCT, *_SCALAR, *_FROMBUFFER, "numpy.dtype", "numpy.ndarray", "_codecs.encode", "__builtin__.bytes"}
_PLAIN_CODE = re.compile(r"[biufUS][0-9]{1,4}|O8?|\?")


def _answer(symbol: Any, arguments: Any) -> Any:
    """Return what numpy's own functions would for these arguments, or refuse."""
    if not isinstance(symbol, _Symbol) or not isinstance(arguments, tuple):
        raise Refused("a call of something that is not a name")
    if symbol.name in _RECONSTRUCT and arguments[:1] == (_Symbol("numpy.ndarray"),):
        return _Array()
    if symbol.name == "numpy.dtype" and arguments and isinstance(arguments[0], str):
        if not _PLAIN_CODE.fullmatch(arguments[0]):
            raise Refused(f"the dtype {arguments[0]!r}")
        return _Dtype(arguments[0])
    if symbol.name in _SCALAR and len(arguments) == 2:
        scalar = _Array()
        scalar.build((1, (), arguments[0], False, arguments[1]))
        return _finished(scalar)[()]
    if symbol.name in _FROMBUFFER and len(arguments) in (4, 5):
        buffer, dtype, shape, order, *axes = arguments
        array = _Array()
        array.build((1, shape, dtype, order == "F", bytes(buffer) if isinstance(buffer, bytearray) else buffer))
        if order == "K" and axes and axes[0] is not None:  # since numpy 2.4, for arrays with transposed axes
            if sorted(axes[0]) != list(range(len(shape))):
                raise Refused(f"the axes {axes[0]!r}")
            array.value = array.value.transpose(axes[0])
        return array
    if symbol.name == "_codecs.encode" and len(arguments) == 2 and arguments[1] == "latin1":
        return str(arguments[0]).encode("latin1")  # how protocol 2 writes bytes
    if symbol.name == "__builtin__.bytes" and arguments == ():
        return b""  # and how it writes none
    raise Refused(f"a call of {symbol.name} with other arguments than numpy's")


def _finished(value: Any, depth: int = 0) -> Any:
    """Return the value with finished arrays in place of those in the making."""
    if depth > 20:
        raise Refused("values nested deeper than 20 levels")
    if isinstance(value, _Array):
        if value.value is None:
            raise Refused("an array without data")
        return _finished(value.value, depth + 1)
    if isinstance(value, _Symbol | _Dtype):
        raise Refused("a name or type where a value should be")
    if isinstance(value, dict):
        return {k: _finished(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_finished(v, depth + 1) for v in value]
    if isinstance(value, tuple):
        return tuple(_finished(v, depth + 1) for v in value)
    return value


_LITERALS = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINSTRING", "BINSTRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_MARK = object()


class _Machine:
    """The stack machine: a stack, a memo, and the instructions of the tables above."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def step(self, code: str, argument: Any) -> None:
        stack = self.stack
        if code in _LITERALS:
            stack.append(argument)
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code == "MARK":
            stack.append(_MARK)
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(code[-1])
            stack[-n:] = [tuple(stack[-n:])]
        elif code == "TUPLE":
            stack.append(tuple(self.to_mark()))
        elif code in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif code == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif code in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif code == "GLOBAL":
            self.push_symbol(*argument.split(" ", 1))
        elif code == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            self.push_symbol(module, name)
        elif code == "REDUCE":
            arguments = stack.pop()
            stack.append(_answer(stack.pop(), arguments))
        elif code == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Array | _Dtype):
                raise Refused("a state for something that is not an array")
            stack[-1].build(state)
        elif code in ("APPEND", "APPENDS"):
            items = [stack.pop()] if code == "APPEND" else self.to_mark()
            if type(stack[-1]) is not list:
                raise Refused("an append to something that is not a list")
            stack[-1].extend(items)
        elif code in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if code == "SETITEM" else self.to_mark()
            if type(stack[-1]) is not dict or not all(isinstance(k, str | bytes | int) for k in items[::2]):
                raise Refused("an item for something that is not a dictionary of names")
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif code not in ("PROTO", "FRAME"):
            raise Refused(f"the instruction {code}")

    def push_symbol(self, module: Any, name: Any) -> None:
        full = f"{module}.{name}"
        if full not in _KNOWN:
            raise Refused(f"the name {' '.join(full.split())[:60]}")
        self.stack.append(_Symbol(full))


def read_inert(stream: BinaryIO) -> Any:
    """Return what a pickle of plain arrays, numbers, strings, lists and dictionaries holds.

    Arrays of objects come back as flat lists. Nothing is imported, looked up or called.

    Parameters
    ----------
    stream : binary file
        At the beginning of the pickle.

    Raises
    ------
    Refused
        With the name or instruction that is not needed for such values.
    """
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "STOP":
            break
        machine.step(opcode.name, argument)
    if len(machine.stack) != 1:
        raise ValueError("the pickle does not end with one value")
    return _finished(machine.stack[0])
