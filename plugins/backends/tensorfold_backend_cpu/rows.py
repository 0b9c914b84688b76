"""The arrays of this backend: rows in memory that may not be computed yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.errors import BackendError
from tensorfold_backend_cpu.kernels.arithmetic import Combine
from tensorfold_backend_cpu.kernels.elementwise import RUN, Add, Gather, Scale
from tensorfold_backend_cpu.kernels.quantized import BLOCK, Quantize
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.memory import Buffer
from tensorfold_backend_cpu.places import Place, Target

__all__ = ["Rows", "blocks", "place"]

_FLOAT: Final = np.dtype(np.float32)


def blocks(columns: int) -> int:
    """Items into which a row of so many columns is divided."""
    return (columns + BLOCK - 1) // BLOCK


def place(x: Rows) -> Place:
    """Where rows lie."""
    return Place(x.address, x.stride)


@dataclass(frozen=True, slots=True)
class _Repeats:
    """How one array meets another that is larger or the same, both laid out in lines of the larger's last axis."""

    rows: int
    """Lines of the smaller, after which it begins again."""
    step: int
    """Numbers of a line of the smaller: one, or as many as there are columns."""
    columns: int

    @staticmethod
    def of(shape: tuple[int, ...], other: tuple[int, ...]) -> _Repeats | None:
        """None: the smaller does not repeat as a whole."""
        if not other or len(other) > len(shape) or other[-1] not in (1, shape[-1]):
            return None
        leading = other[:-1]
        while leading[:1] == (1,):
            leading = leading[1:]
        if leading != shape[len(shape) - 1 - len(leading) : -1]:
            return None
        return _Repeats(math.prod(leading), other[-1], shape[-1])


class Rows:
    """An array: rows `[R, ...]`, each of them contiguous. Reading it on the host carries out what is recorded."""

    __slots__ = ("_integers", "address", "dtype", "machine", "owner", "shape", "stride")

    def __init__(
        self,
        machine: Machine,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        owner: Buffer | NDArray[Any],
        address: int,
        stride: int | None = None,
    ) -> None:
        self.machine = machine
        self.shape = tuple(shape)
        self.dtype = dtype
        self.address = address
        self.stride = math.prod(self.shape[1:]) * dtype.itemsize if stride is None else stride
        """Bytes from row to row."""
        self.owner = owner
        """Whose memory it is."""
        self._integers: dict[int, tuple[Target, Buffer]] = {}

    # ---- making ----------------------------------------------------------------------------------------------

    @staticmethod
    def new(machine: Machine, shape: Sequence[int], kind: type[np.generic] = np.float32) -> Rows:
        """Numbers that a call is about to write."""
        dtype = np.dtype(kind)
        buffer = machine.pool.take(dtype.itemsize * math.prod(shape))
        return Rows(machine, shape, dtype, buffer, buffer.memory.address)

    @staticmethod
    def of(machine: Machine, values: NDArray[Any]) -> Rows:
        """What the host has, without a copy if it is contiguous; nobody may write to it."""
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        values = np.ascontiguousarray(values) if values.ndim else values.reshape(1)
        return Rows(machine, values.shape, values.dtype, values, int(values.ctypes.data))

    def view(self, shape: Sequence[int], offset: int = 0, stride: int | None = None) -> Rows:
        """A part of the same memory, `offset` bytes in."""
        return Rows(self.machine, shape, self.dtype, self.owner, self.address + offset, stride)

    def again(self) -> Rows:
        """The same rows, of which no integers were made yet."""
        return self.view(self.shape, 0, self.stride)

    # ---- what it is ------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Bytes from the first row's beginning to the last one's end."""
        if 0 in self.shape:
            return 0
        rows = self.shape[0] if self.shape else 1
        return (rows - 1) * self.stride + self.count // rows * self.dtype.itemsize

    @property
    def whole(self) -> bool:
        """Whether rows follow each other without gaps."""
        return self.stride == math.prod(self.shape[1:]) * self.dtype.itemsize or self.shape[:1] == (1,)

    def values(self) -> NDArray[Any]:
        """The array on the host, once it is computed; valid as long as this object and until the next Step."""
        self.machine.run()
        strides = [self.dtype.itemsize] * len(self.shape)
        for axis in range(len(self.shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
        if self.shape:
            strides[0] = self.stride if len(self.shape) > 1 else self.stride or self.dtype.itemsize
        owner = self.owner
        memory = owner.memory.bytes if isinstance(owner, Buffer) else owner.reshape(-1).view(np.uint8)
        offset = self.address - int(memory.ctypes.data)
        return np.ndarray(self.shape, self.dtype, memory, offset, strides)

    def floats(self) -> Rows:
        """The same as floats, which it nearly always is."""
        return self if self.dtype == _FLOAT else Rows.of(self.machine, self.values().astype(np.float32))

    def packed(self) -> Rows:
        """The same as floats without gaps."""
        if self.dtype != _FLOAT:
            return self.floats()
        if self.whole:
            return self
        return self.copy()

    def copy(self, out: Rows | None = None) -> Rows:
        """These floats in memory of their own, or in that of `out`, without gaps."""
        copy = Rows.new(self.machine, self.shape) if out is None else out
        self.machine.call(
            Gather(
                items=self.shape[0],
                x=self.address,
                x_stride=self.stride,
                index=0,
                columns=math.prod(self.shape[1:]),
                out=copy.address,
                out_stride=copy.stride,
            ),
            self.owner,
        )
        return copy

    def combine(self, other: Rows, *, product: bool, out: Rows | None = None) -> Rows:
        """The sum or product with floats of the same shape, or of one that repeats along this.

        Raises:
            BackendError: it does not repeat as a whole.
        """
        repeats = _Repeats.of(self.shape, other.shape)
        if repeats is None:
            raise BackendError(f"rows {other.shape} do not repeat along rows {self.shape}")
        flat = len(self.shape) == 2
        lined = self if flat or self.whole else self.packed()
        alike = flat and other.shape == self.shape
        met = other if alike else other.packed()
        made = Rows.new(self.machine, self.shape) if out is None else out
        self.machine.call(
            Combine(
                items=self.count // repeats.columns,
                a=lined.address,
                a_stride=lined.stride if flat else 4 * repeats.columns,
                b=met.address,
                b_stride=met.stride if alike else 4 * repeats.step,
                b_rows=repeats.rows,
                single=int(repeats.step < repeats.columns),
                columns=repeats.columns,
                product=int(product),
                out=made.address,
                out_stride=4 * repeats.columns,
            ),
            lined.owner,
            met.owner,
        )
        return made

    def integers(self, step: int) -> Target:
        """The rows `[R, columns]` as integers with a scale for each `step` columns; made once.

        What uses them is recorded together with `forms`.
        """
        found = self._integers.get(step)
        if found is None:
            rows, columns = self.shape
            buffer = self.machine.pool.take(Target.size(rows, columns, step))
            target = Target(buffer.memory.address, rows, columns, step)
            self.machine.call(
                Quantize(
                    items=rows * blocks(target.padded),
                    x=self.address,
                    x_stride=self.stride,
                    columns=columns,
                    step=step,
                    padded=target.padded,
                    target=target.address,
                ),
                self.owner,
                target,
            )
            found = self._integers[step] = (target, buffer)
        return found[0]

    @property
    def forms(self) -> tuple[object, ...]:
        """What calls on these rows refer to, and must keep until they have run."""
        return (self.owner, *(target for target, _ in self._integers.values()))

    # ---- what families may do --------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Rows:
        if self._meets(other):
            if other.shape != self.shape:
                return self._with(other, product=False)
            a, b = self.packed(), other.packed()
            out = Rows.new(self.machine, self.shape)
            self.machine.call(
                Add(items=-(-self.count // RUN), a=a.address, b=b.address, count=self.count, out=out.address),
                a.owner,
                b.owner,
            )
            return out
        return Rows.of(self.machine, np.asarray(self.values() + _host(other)))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Rows:
        if type(other) is float and self.dtype == _FLOAT:
            x, out = self.packed(), Rows.new(self.machine, self.shape)
            self.machine.call(
                Scale(items=-(-self.count // RUN), x=x.address, count=self.count, factor=other, out=out.address),
                x.owner,
            )
            return out
        if self._meets(other):
            return self._with(other, product=True)
        return Rows.of(self.machine, np.asarray(self.values() * _host(other)))

    __rmul__ = __mul__

    def _meets(self, other: Any) -> TypeGuard[Rows]:
        """Whether a kernel combines this with the other."""
        if not isinstance(other, Rows) or not self.count or not self.dtype == other.dtype == _FLOAT:
            return False
        larger, smaller = _by_size(self, other)
        return _Repeats.of(larger.shape, smaller.shape) is not None

    def _with(self, other: Rows, *, product: bool) -> Rows:
        larger, smaller = _by_size(self, other)
        return larger.combine(smaller, product=product)

    def __getitem__(self, index: Any) -> Rows:
        if isinstance(index, slice) and self.shape:
            first, last, step = index.indices(self.shape[0])
            if step == 1:
                return self.view((max(0, last - first), *self.shape[1:]), first * self.stride, self.stride)
        if isinstance(index, tuple) and len(self.shape) > 1:
            every, *numbers = cast("tuple[Any, ...]", index)
            if every == slice(None) and len(numbers) == 1 and numbers[0] in range(self.shape[1]):
                rows, _, *rest = self.shape
                return self.view((rows, *rest), int(numbers[0]) * math.prod(rest) * self.dtype.itemsize, self.stride)
        # A copy, for the memory may be lent again when this object goes.
        return Rows.of(self.machine, np.array(self.values()[index]))


def _by_size(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """The larger first."""
    return (one, other) if one.count >= other.count else (other, one)


def _host(other: Any) -> Any:
    """An operand that numpy takes."""
    return other.values() if isinstance(other, Rows) else other
