"""The operations over which a family is written once, and which every backend offers.

Rules that hold for all of them:

1. Activations are rows `[R, ...]`. Below, `H` is hidden, `h` query heads, `k` key heads, `d` a head's width.
2. Activations have one dtype, the backend's `act` (f32, bf16, ...). `embed linear experts attend attend_latent
   short_conv gated_delta ssd rope *norm glu` return `act` and compute inside as they must: norms, softmax, rope
   tables, routing and recurrences in f32. `softmax`, `route` weights and vectors are f32; `mix` and `sum` compute
   in f32 and return their input's dtype; `linear` with `wide` returns f32.
3. `+` and `*` of `act` with an f32 vector promotes to f32; every operation takes f32 or `act` and returns what
   rule 2 says, so that f32 never leaks past the next operation. Multiply the residual by Python floats only.
4. Pure operations never write to their arguments. What a stateful operation returns is valid until the next
   `forward`. A family keeps no array between Steps: states belong to the backend, under (slot, name).
5. Row r depends on row r and on earlier rows of its own sequence. In a `rows` Step so do its **bits**: not on how
   many rows share the call, on their order or on padding. No operation chooses a kernel by the number of rows.
6. A stateful operation is one call over all rows of the Step: it writes the rows' states, then reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear, Rope, Router
from tensorfold.contracts.step import Step

__all__ = ["Ops", "Selection"]

Selection = NewType("Selection", object)
"""What `index_topk` chose; opaque, may be handed to later layers of the same Step."""


class Ops(Protocol[A]):
    """The operations of one kind (`chunk` or `rows`) over one model's weights and states."""

    # ---- shape, pure -----------------------------------------------------------------------------------------

    def reshape(self, x: A, *shape: int) -> A:
        """The same elements in another shape; one size may be -1."""
        ...

    def split(self, x: A, sizes: Sequence[int]) -> tuple[A, ...]:
        """Consecutive parts of the last axis."""
        ...

    def concat(self, xs: Sequence[A], axis: int = -1) -> A:
        """The parts joined along an axis."""
        ...

    def rows(self, x: A, index: A) -> A:
        """`x[index]` on axis 0; index is integer, of any shape."""
        ...

    # ---- projections, pure -----------------------------------------------------------------------------------

    def embed(self, ids: A, weight: Embedding) -> A:
        """`[R]` or `[R, n]` ids to `[R, H]` or `[R, n, H]`, in `act`."""
        ...

    def linear(self, x: A, weight: Linear, *, wide: bool = False) -> A:
        """`[R, I]` to `[R, O]`; O is the fused parts' sizes together, in the order asked; biases are inside.

        `wide`: the products are summed and returned in f32, unrounded. Routers ask for it: logits that are rounded to
        bf16 tie at the cut between chosen and left experts.
        """
        ...

    # ---- norms, pure: over the last axis; w f32, `[d]`, or `[g, d]` against x `[R, g, d]` --------------------

    def rms_norm(self, x: A, weight: A | None, eps: float) -> A:
        """x / sqrt(mean(x^2) + eps), times the weight if there is one."""
        ...

    def layer_norm(self, x: A, weight: A, bias: A | None, eps: float) -> A:
        """Mean and variance normalized, times weight, plus bias."""
        ...

    def gated_rms_norm(self, x: A, gate: A, weight: A, eps: float, *, gate_first: bool, act: Activation) -> A:
        """`gate_first`: rms_norm(x * act(gate)) (Mamba); else rms_norm(x) * act(gate) (GDN, KDA)."""
        ...

    # ---- elementwise, pure -----------------------------------------------------------------------------------

    def activate(self, x: A, act: Activation) -> A:
        """silu, gelu (tanh form), relu2 or sigmoid, in x's dtype."""
        ...

    def sigmoid(self, x: A) -> A: ...

    def softplus(self, x: A) -> A: ...

    def tanh(self, x: A) -> A: ...

    def exp(self, x: A) -> A: ...

    def sqrt(self, x: A) -> A: ...

    def abs(self, x: A) -> A: ...

    def sign(self, x: A) -> A: ...

    def maximum(self, x: A, bound: float) -> A:
        """The larger of each element and the bound."""
        ...

    def softcap(self, x: A, cap: float) -> A:
        """cap * tanh(x / cap)."""
        ...

    def glu(self, gate_up: A, act: Activation, limit: float | None = None) -> A:
        """`[R, 2I]` to `[R, I]`: act(gate) * up; with a limit, gate is cut above and up on both sides first."""
        ...

    # ---- reductions, pure ------------------------------------------------------------------------------------

    def softmax(self, x: A, axis: int = -1) -> A:
        """In f32."""
        ...

    def sum(self, x: A, axis: int) -> A:
        """Computed in f32, returned in x's dtype."""
        ...

    def mix(self, weights: A, x: A) -> A:
        """sum_n w x: `[R, n]`, `[R, n, H]` to `[R, H]`; `[R, n, m]`, `[R, n, H]` to `[R, m, H]`."""
        ...

    def sinkhorn(self, x: A, iterations: int, eps: float) -> A:
        """`[R, n, n]`: columns, then rows and columns in turn, divided by their sums + eps (iterations - 1 times)."""
        ...

    # ---- experts, pure ---------------------------------------------------------------------------------------

    def route(self, logits: A, router: Router, bias: A | None = None) -> tuple[A, A]:
        """`[R, E]` to (ids `[R, k]` int, weights `[R, k]` f32), best first; the bias chooses and does not weigh."""
        ...

    def experts(self, x: A, ids: A, weights: A, experts: Experts) -> A:
        """`[R, H]` to `[R, H]`: the chosen experts' outputs, weighed and summed in rank order, in f32."""
        ...

    # ---- position, pure --------------------------------------------------------------------------------------

    def rope(self, step: Step[A], x: A, rope: Rope, *, shift: int = 0) -> A:
        """`[R, h, d]` rotated by the rows' positions + shift."""
        ...

    # ---- stateful: `name` is a declared state ----------------------------------------------------------------

    def attend(
        self,
        step: Step[A],
        name: str,
        q: A,
        k: A | None,
        v: A | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: A | None = None,
        softcap: float | None = None,
    ) -> A:
        """Causal attention, `q [R, h, d]`, `k [R, k, d]`, `v [R, k, dv]` to `[R, h, dv]`; the window is the state's.

        k = v = None reads a state that an earlier layer of this Step wrote. `sinks [h]` are logits without a value.
        """
        ...

    def attend_latent(
        self,
        step: Step[A],
        name: str,
        q_nope: A,
        q_rope: A | None,
        latent: A,
        k_rope: A | None,
        up: LatentUp,
        *,
        scale: float,
        select: Selection | None = None,
    ) -> A:
        """MLA: `q_nope [R, h, n]`, `q_rope [R, h, r]`, `latent [R, l]`, `k_rope [R, r]` to `[R, h, v]`."""
        ...

    def index_topk(
        self, step: Step[A], name: str, q: A, k: A, weights: A | None, *, topk: int, scale: float
    ) -> Selection:
        """`q [R, i, d]`, `k [R, d]`, `weights [R, i]`: keeps the best by sum_i w relu(scale q.k), ties to the lower.

        With a pool p in the state, topk counts pools: only rows with (position + 1) % p == 0 store their key, and
        the incomplete tail is always selected.
        """
        ...

    def short_conv(self, step: Step[A], name: str, x: A, weight: ConvWeight, *, act: Activation | None) -> A:
        """Causal depthwise convolution `[R, C]` to `[R, C]`; taps and dilation are the state's."""
        ...

    def recent(self, step: Step[A], name: str, x: A) -> A:
        """`[R, C]` to `[R, n, C]`: a row's last n inputs, oldest first, zeros before the start."""
        ...

    def gated_delta(self, step: Step[A], name: str, q: A, k: A, v: A, g: A, beta: A, *, scale: float) -> A:
        """`q, k [R, hk, dk]`, `v [R, hv, dv]`, `g` f32 `[R, hv]` (GDN) or `[R, hv, dk]` (KDA), `beta [R, hv]`.

        q and k are L2-normalized inside (eps 1e-6); g is the log of the decay; returns `[R, hv, dv]`.
        """
        ...

    def ssd(self, step: Step[A], name: str, x: A, dt: A, a: A, b: A, c: A, d: A) -> A:
        """Mamba-2: `x [R, h, p]`, `dt [R, h]` ready, `a [h]` negative, `b, c [R, g, n]`, `d [h]` to `[R, h, p]`."""
        ...
