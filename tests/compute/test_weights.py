"""Named tensors to handles: what is asked, checked, packed and refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.loading import check_weights, load_decoder
from tensorfold.compute.weights import CheckpointWeights
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Affine, Dense, Tensor, TensorInfo
from tensorfold.contracts.weights import Weights
from tensorfold.errors import WeightsMismatch
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_tensors
from tensorfold.testing.random_tensors import RandomTensors

B = TypeVar("B")
Floats = NDArray[np.float32]


class Tensors:
    """A source of given tensors that remembers the order in which it was read."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        self.reads: list[str] = []

    def names(self) -> Iterable[str]:
        return self.tensors

    def info(self, name: str) -> TensorInfo:
        shape = self.tensors[name].shape
        return TensorInfo(name, shape, "F32", 4 * int(np.prod(shape)))

    def read(self, name: str) -> Tensor:
        self.reads.append(name)
        return self.tensors[name]


@dataclass(eq=False)
class Packed(Linear, Embedding, Experts, LatentUp, ConvWeight):
    """A handle of any kind that keeps what it was made from."""

    made: Any


class Keeping:
    """A packer that keeps its arguments."""

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Packed:
        return Packed(([part.f32() for part in parts], [None if each is None else each.f32() for each in biases]))

    def embedding(self, parts: Sequence[Tensor]) -> Packed:
        return Packed([part.f32() for part in parts])

    def tied(self, embedding: Embedding) -> Packed:
        return Packed(embedding)

    def vector(self, values: Floats) -> Floats:
        return values.copy()

    def conv(self, kernel: Floats, bias: Floats | None) -> Packed:
        return Packed((kernel, bias))

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> Packed:
        return Packed(([[part.f32() for part in parts] for parts in up], [each.f32() for each in down], act, gated))

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> Packed:
        return Packed((weight.f32(), heads, nope, v))


def numbers(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weights(**tensors: NDArray[Any]) -> tuple[CheckpointWeights[Floats], Tensors]:
    """Weights over these float32 (or integer) tensors; `__` in a name stands for a dot."""
    source = Tensors(
        {
            name.replace("__", "."): Dense(values, "i64" if values.dtype == np.int64 else "f32")
            for name, values in tensors.items()
        }
    )
    return CheckpointWeights(source, Keeping()), source


def made(handle: object) -> Any:
    assert isinstance(handle, Packed)
    return handle.made


# ---- matrices -----------------------------------------------------------------------------------------------


def test_a_fused_group_has_its_parts_in_the_order_asked_with_the_biases_that_are_there() -> None:
    """Order of the names, not of the file; a part without a bias stays without one."""
    q, k, bias = numbers(6, 4), numbers(2, 4, seed=1), numbers(2, seed=2)
    asked, _ = weights(k__weight=k, k__bias=bias, q__weight=q)
    parts, biases = made(asked.linear("q", "k", sizes=(6, 2), columns=4))
    np.testing.assert_array_equal(parts[0], q)
    np.testing.assert_array_equal(parts[1], k)
    assert biases[0] is None
    np.testing.assert_array_equal(biases[1], bias)
    assert asked.unused() == ()


def test_parts_of_other_input_widths_are_no_group() -> None:
    """The second part is named with what it is and must be."""
    asked, _ = weights(q__weight=numbers(6, 4), k__weight=numbers(2, 5))
    with pytest.raises(WeightsMismatch, match=r"k\.weight is \[2, 5\], and must be \[any, 4\]"):
        asked.linear("q", "k")


def test_a_bias_that_the_config_wants_is_missed() -> None:
    """`bias=True` asks for it by name."""
    asked, _ = weights(q__weight=numbers(6, 4))
    with pytest.raises(WeightsMismatch, match=r"q\.bias is missing"):
        asked.linear("q", bias=True)


def test_a_bias_that_the_config_rules_out_stays_unused() -> None:
    """`bias=False` leaves it alone, so that it is told as foreign."""
    asked, _ = weights(q__weight=numbers(6, 4), q__bias=numbers(6))
    assert made(asked.linear("q", bias=False))[1] == [None]
    assert asked.unused() == ("q.bias",)


def test_a_tied_head_is_the_embedding_and_a_stored_copy_counts_as_used() -> None:
    """Many checkpoints with a tied head store it nevertheless."""
    asked, source = weights(embed__weight=numbers(8, 4), lm_head__weight=numbers(8, 4, seed=1))
    embedding = asked.embedding("embed", shape=(8, 4))
    assert made(asked.head("lm_head", embedding, shape=(8, 4))) is embedding
    assert asked.unused() == ()
    assert source.reads == ["embed.weight"]


def test_an_untied_head_is_read_and_checked() -> None:
    """It has the table's shape."""
    asked, _ = weights(lm_head__weight=numbers(8, 4))
    assert made(asked.head("lm_head", None, shape=(8, 4)))[0][0].shape == (8, 4)
    with pytest.raises(WeightsMismatch, match=r"lm_head\.weight is \[8, 4\], and must be \[9, 4\]"):
        asked.head("lm_head", None, shape=(9, 4))


def test_an_embedding_in_shards_has_the_rows_of_all() -> None:
    """Shards of any size; the sum is checked."""
    asked, _ = weights(a__weight=numbers(3, 4), b__weight=numbers(5, 4, seed=1))
    assert [part.shape for part in made(asked.embedding("a", "b", shape=(8, 4)))] == [(3, 4), (5, 4)]
    with pytest.raises(WeightsMismatch, match="8 rows, not 9"):
        asked.embedding("a", "b", shape=(9, 4))


def test_a_bare_parameter_is_a_matrix_under_its_full_name() -> None:
    """No `.weight` is added."""
    asked, _ = weights(fn=numbers(3, 4))
    assert made(asked.matrix("fn", shape=(3, 4)))[0][0].shape == (3, 4)


def test_a_latent_up_projection_has_the_rows_of_its_heads() -> None:
    """heads * (nope + v)."""
    asked, _ = weights(kv_b__weight=numbers(2 * (3 + 5), 4))
    assert made(asked.latent_up("kv_b", 2, 3, 5))[1:] == (2, 3, 5)
    with pytest.raises(WeightsMismatch, match=r"must be \[18, any\]"):
        asked.latent_up("kv_b", 2, 4, 5)


# ---- small tensors ------------------------------------------------------------------------------------------


def test_vectors_are_shifted_transformed_and_reshaped() -> None:
    """fn(value + add), rounded once to f32, in the shape asked."""
    values = numbers(6)
    asked, _ = weights(v=values)
    np.testing.assert_array_equal(asked.vector("v", add=1.0), values + np.float32(1))
    exact = -np.exp(values.astype(np.float64))
    np.testing.assert_array_equal(asked.vector("v", fn="neg_exp", shape=(2, 3)), exact.reshape(2, 3).astype(np.float32))
    np.testing.assert_array_equal(asked.vector("v", fn="exp"), (-exact).astype(np.float32))
    with pytest.raises(WeightsMismatch, match=r"v is \[6\], and must be \[5\]"):
        asked.vector("v", shape=(5,))


def test_scalars_floats_and_integers_come_to_the_host() -> None:
    """Each in its own kind; floating values are no integers."""
    asked, _ = weights(s=np.array([0.5], np.float32), f=numbers(4), i=np.arange(3, dtype=np.int64))
    assert asked.scalar("s") == 0.5
    assert asked.floats("f", shape=(2, 2)).shape == (2, 2)
    np.testing.assert_array_equal(asked.ints("i"), [0, 1, 2])
    with pytest.raises(WeightsMismatch, match="f is F32, and must hold integers"):
        asked.ints("f")
    with pytest.raises(WeightsMismatch, match=r"f is \[4\], and must be \[1\]"):
        asked.scalar("f")


def test_convolutions_are_joined_along_the_channels() -> None:
    """`[C, 1, taps]` each, biases joined when there are any."""
    asked, _ = weights(
        q__weight=numbers(3, 1, 4), q__bias=numbers(3), k__weight=numbers(2, 1, 4, seed=1), k__bias=numbers(2, seed=1)
    )
    kernel, bias = made(asked.conv("q", "k", shape=(5, 4)))
    assert kernel.shape == (5, 4) and bias.shape == (5,)
    with pytest.raises(WeightsMismatch, match=r"gives \[5, 4\], and must give \[6, 4\]"):
        asked.conv("q", "k", shape=(6, 4))
    assert asked.shape("q.weight") == (3, 1, 4)


# ---- experts ------------------------------------------------------------------------------------------------


def expert_layouts() -> dict[str, dict[str, NDArray[Any]]]:
    """The same two experts of width 3 over hidden 4, in each layout that checkpoints use."""
    gate, up, down = numbers(2, 3, 4), numbers(2, 3, 4, seed=1), numbers(2, 4, 3, seed=2)
    each = {
        f"x.{expert}.{name}.weight": stack[expert]
        for name, stack in (("gate_proj", gate), ("up_proj", up), ("down_proj", down))
        for expert in range(2)
    }
    return {
        "one by one": each,
        "fused": {"x.gate_up_proj": np.concatenate([gate, up], axis=1), "x.down_proj": down},
        "stacked": {"x.gate_proj.weight": gate, "x.up_proj.weight": up, "x.down_proj.weight": down},
    }


@pytest.mark.parametrize("layout", ["one by one", "fused", "stacked"])
def test_experts_are_the_same_in_every_layout(layout: str) -> None:
    """One by one, gate and up fused in one stack, or a stack each."""
    source = Tensors({name: Dense(values, "f32") for name, values in expert_layouts()[layout].items()})
    asked = CheckpointWeights(source, Keeping())
    up, down, act, gated = made(asked.experts("x", 2, shape=(3, 4)))
    plain = expert_layouts()["one by one"]
    for expert in range(2):
        np.testing.assert_array_equal(up[expert][0], plain[f"x.{expert}.gate_proj.weight"])
        np.testing.assert_array_equal(up[expert][1], plain[f"x.{expert}.up_proj.weight"])
        np.testing.assert_array_equal(down[expert], plain[f"x.{expert}.down_proj.weight"])
    assert act == "silu" and gated
    assert asked.unused() == ()


def test_experts_of_another_width_are_refused_by_name() -> None:
    """In a stack and one by one."""
    for layout, name in (("fused", "x.gate_up_proj"), ("one by one", r"x\.0\.gate_proj\.weight")):
        source = Tensors({each: Dense(values, "f32") for each, values in expert_layouts()[layout].items()})
        with pytest.raises(WeightsMismatch, match=name):
            CheckpointWeights(source, Keeping()).experts("x", 2, shape=(5, 4))


def test_quantized_stacks_are_cut_like_dense_ones() -> None:
    """A fused stack of affine codes gives each expert its own rows."""
    generator = np.random.default_rng(0)
    stack = Affine(
        8,
        32,
        generator.integers(0, 256, (2, 6, 32), dtype=np.uint8),
        generator.standard_normal((2, 6, 1)).astype(np.float32),
        generator.standard_normal((2, 6, 1)).astype(np.float32),
    )
    down = Dense(numbers(2, 32, 3), "f32")
    asked = CheckpointWeights(Tensors({"x.gate_up_proj": stack, "x.down_proj": down}), Keeping())
    up = made(asked.experts("x", 2, shape=(3, 32)))[0]
    np.testing.assert_array_equal(up[1][0], stack.f32()[1, :3])
    np.testing.assert_array_equal(up[1][1], stack.f32()[1, 3:])


# ---- blocks and bookkeeping ---------------------------------------------------------------------------------


def test_a_packer_may_put_its_own_block_in_place_of_one() -> None:
    """It is asked for each block while the decoder is built; a packer without blocks is not."""

    class Replacing(Keeping):
        def block(self, block: B) -> B:
            seen.append(block)
            return block

    seen: list[object] = []
    block = object()
    assert CheckpointWeights(Tensors({}), Replacing()).block(block) is block
    assert seen == [block]
    assert CheckpointWeights(Tensors({}), Keeping()).block(block) is block


def test_what_a_family_ignores_is_not_unused() -> None:
    """Patterns are those of file names."""
    asked, _ = weights(
        model__0__inv_freq=numbers(2), vision__tower__weight=numbers(2), model__0__gate=numbers(2), norm=numbers(2)
    )
    asked.ignore("*.inv_freq", "vision.*")
    asked.vector("norm")
    assert asked.unused() == ("model.0.gate",)


# ---- building -----------------------------------------------------------------------------------------------


def test_every_problem_is_told_at_once_and_nothing_was_read() -> None:
    """Missing, misshapen and foreign tensors in one message; layers that lack the same tensor share a line."""
    config = fake_config()
    shapes = fake_tensors(config)
    shapes |= {"norm.weight": (31,), "surplus.weight": (2, 2)}
    for layer in range(5):
        del shapes[f"layers.{layer}.mlp_norm.weight"]
    del shapes["head.weight"]
    source = Tensors({name: Dense(np.zeros(shape, np.float32), "f32") for name, shape in shapes.items()})
    with pytest.raises(WeightsMismatch) as caught:
        load_decoder(FakeFamily(), config, source, Keeping())
    lines = str(caught.value).splitlines()
    assert lines[0] == "fake config.json: the weights do not fit the fake family:"
    assert set(lines[1:]) == {
        "  head.weight is missing",
        "  norm.weight is [31], and must be [32]",
        "  layers.*.mlp_norm.weight (5 tensors) is missing",
        "  surplus.weight is not run by this family",
    }
    assert source.reads == []


def test_a_shape_that_a_family_cannot_do_without_ends_the_check_with_what_was_found() -> None:
    """`shape` of a missing tensor has no answer."""

    class Asking(FakeFamily):
        def build(self, config: ModelConfig, weights: Weights[Any]) -> Any:
            weights.vector("first")
            weights.shape("second")
            raise AssertionError

    with pytest.raises(WeightsMismatch, match=r"first is missing\n  second is missing"):
        check_weights(Asking(), fake_config(), Tensors({}))


def test_progress_tells_the_bytes_read_of_all_that_will_be() -> None:
    """Each tensor once, the last call at the total, which leaves out what is ignored."""
    config = fake_config()
    source = RandomTensors(fake_tensors(config))
    told: list[tuple[int, int]] = []
    load_decoder(FakeFamily(), config, source, Keeping(), progress=lambda done, total: told.append((done, total)))
    total = sum(source.info(name).stored_bytes for name in source.names())
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (total, total)
    assert len(told) == len(fake_tensors(config))


def test_the_same_seed_gives_the_same_tensors() -> None:
    """A tensor's values depend on its name and the seed, not on what else there is."""
    one, other = RandomTensors({"a": (3, 2), "b": (4,)}, seed=3), RandomTensors({"b": (4,)}, seed=3)
    np.testing.assert_array_equal(one.read("b").values, other.read("b").values)
    assert (one.read("a").values != RandomTensors({"a": (3, 2)}, seed=4).read("a").values).all()
