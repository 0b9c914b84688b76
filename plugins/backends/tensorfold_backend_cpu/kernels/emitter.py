"""A thin layer over LLVM's builder: the vector instructions from which the kernels are put together.

Vectors have 16 lanes whatever the processor has; LLVM splits them where registers are narrower, which changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias

from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic

from tensorfold_backend_cpu.kernels.untyped import cgutils, ir, register_model

__all__ = ["F32", "I8", "I32", "LANES", "Address", "Emitter", "Vector", "operation", "vector_type"]

LANES: Final = 16

Value: TypeAlias = Any
"""An LLVM value while a kernel is emitted."""
Vector: TypeAlias = Any
"""Sixteen floats inside a kernel, held in registers; only `simd`'s functions take and give them."""
Address: TypeAlias = int
"""A place in memory, in bytes."""

I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
F16: Final = ir.HalfType()
F32: Final = ir.FloatType()
V8: Final = ir.VectorType(I8, 4 * LANES)
V32: Final = ir.VectorType(I32, LANES)
VF: Final = ir.VectorType(F32, LANES)
VH: Final = ir.VectorType(F16, LANES)


class _VectorType(types.Type):
    """numba's name for sixteen floats."""

    def __init__(self) -> None:
        initialize: Any = super().__init__
        initialize(name="tensorfold_f32x16")


vector_type: Final = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    """They are one LLVM vector."""

    def __init__(self, manager: Any, kind: Any) -> None:
        initialize: Any = super().__init__
        initialize(manager, kind, VF)


class Emitter:
    """Emits instructions at the builder's place."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    # ---- constants and addresses -----------------------------------------------------------------------------

    def i64(self, value: int) -> Value:
        return ir.Constant(I64, value)

    def constant(self, kind: Any, value: float) -> Value:
        """A constant of a scalar type, or of a vector type in every lane."""
        if isinstance(kind, ir.VectorType):
            return ir.Constant(kind, [value] * kind.count)
        return ir.Constant(kind, value)

    def at(self, base: Value, offset: Value | int, scale: int = 1) -> Value:
        """base + offset * scale, in bytes."""
        moved = self.i64(offset * scale) if isinstance(offset, int) else self.builder.mul(offset, self.i64(scale))
        return self.builder.add(base, moved)

    # ---- memory ----------------------------------------------------------------------------------------------

    def load(self, kind: Any, address: Value) -> Value:
        """One value, at any alignment."""
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=1)

    def store(self, value: Value, address: Value) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=1)

    def prefetch(self, address: Value) -> None:
        """Ask for a cache line that will be read soon; any address will do."""
        pointer = self.builder.inttoptr(address, I8.as_pointer())
        read, keep, data = (ir.Constant(I32, each) for each in (0, 3, 1))
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, read, keep, data)

    def variable(self, initial: Value) -> Value:
        """A place for a value that changes in a loop; LLVM makes a register of it."""
        return cgutils.alloca_once_value(self.builder, initial)

    # ---- lanes -----------------------------------------------------------------------------------------------

    def splat(self, scalar: Value, count: int = LANES) -> Value:
        """The scalar in every lane."""
        empty = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, count), [0] * count))

    def shuffle(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """Lanes of the two vectors laid end to end."""
        return self.builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))

    def part(self, vector: Value, number: int, count: int) -> Value:
        """One of several equal parts of a vector."""
        size = vector.type.count // count
        return self.shuffle(vector, vector, range(number * size, (number + 1) * size))

    def joined(self, parts: Sequence[Value]) -> Value:
        """A power of two of equal vectors as one."""
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        first, second = self.joined(parts[:half]), self.joined(parts[half:])
        return self.shuffle(first, second, range(2 * first.type.count))

    def first_lanes(self, count: Value) -> Value:
        """Which lanes come before this 64-bit count, as a vector of booleans."""
        numbers = ir.Constant(V32, list(range(LANES)))
        return self.builder.icmp_signed("<", numbers, self.splat(self.builder.trunc(count, I32)))

    # ---- calls -----------------------------------------------------------------------------------------------

    def call(self, name: str, result: Any, *arguments: Value) -> Value:
        """An LLVM intrinsic by its full name."""
        kind = ir.FunctionType(result, [each.type for each in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    def vector_call(self, name: str, *arguments: Value) -> Value:
        """An intrinsic over vectors of floats (`llvm.NAME.v16f32`)."""
        return self.call(f"llvm.{name}.v{LANES}f32", VF, *arguments)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.vector_call("fma", a, b, c)

    @contextmanager
    def loop(self, count: Value) -> Generator[Value, None, None]:
        """The instructions emitted inside run for 0 to count - 1."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index


def operation(result: Any, *arguments: Any) -> Callable[[Callable[..., Value]], Callable[..., Any]]:
    """Make a function for kernels out of one that emits instructions: `emit(emitter, *values) -> value`."""

    def make(emit: Callable[..., Value]) -> Callable[..., Any]:
        def typed(context: Any, *given: Any) -> tuple[Any, Callable[..., Value]]:
            del context, given

            def generate(context: Any, builder: Any, signature: Any, values: Sequence[Value]) -> Value:
                value = emit(Emitter(builder), *values)
                return context.get_dummy_value() if signature.return_type == types.void else value

            return result(*arguments), generate

        typed.__name__ = emit.__name__
        # numba reads how many arguments there are from here; it cannot lower `*given`.
        parameters = [Parameter(f"_{number}", Parameter.POSITIONAL_OR_KEYWORD) for number in range(1 + len(arguments))]
        typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        made: Callable[..., Any] = intrinsic(typed)
        return made

    return make
