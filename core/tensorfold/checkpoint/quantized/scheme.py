"""What a config says of its quantization; what is not read is refused by name, before a tensor is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["AffineRule", "Scheme", "scheme_of"]

_KEYS: Final = ("quantization", "quantization_config", "compression_config")
_COMPRESSED: Final = frozenset(
    {"pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "nvfp4-pack-quantized", "mixed-precision"}
)
"""Formats of compressed-tensors that are read; every module's own follows from its tensors."""
_MODELOPT: Final = frozenset(
    {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION"}
)
"""Algorithms of NVIDIA's Model Optimizer that are read."""
_READ: Final = (
    "MLX's affine format, fp8, compressed-tensors (int, float and nvfp4) and modelopt (FP8, NVFP4) are read;"
    " take another version of the checkpoint, or a .gguf file of it"
)


@dataclass(frozen=True, slots=True)
class AffineRule:
    """Bits of a code and columns of a group."""

    bits: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How the matrices of a checkpoint are quantized, as far as their tensors do not say it."""

    name: str
    """For people (`fp8`)."""
    block: tuple[int, int] | None = None
    """Rows and columns that share a scale in FP8; None: as the scales' shapes say."""
    affine: AffineRule | None = None
    """MLX's, for every module that has no rule of its own."""
    zero_points: bool = False
    """Every matrix of integers has them; else their presence says it."""
    modules: Mapping[str, AffineRule] = field(default_factory=lambda: MappingProxyType(dict[str, AffineRule]()))


def scheme_of(config: ModelConfig, beside: Mapping[str, Any]) -> Scheme | None:
    """The scheme, or None for a checkpoint of plain floats; `beside` is `hf_quant_config.json`, empty without one.

    Raises:
        CheckpointUnsupported: the scheme is not read; named.
    """
    for section in (config, config.section("text_config")):
        for key in _KEYS:
            found = None if section is None else section.section(key)
            if found is not None and found.values:
                return _read(found)
    if beside:
        inner = ModelConfig(beside, {}, config.where.replace("config.json", "hf_quant_config.json"))
        return _modelopt(inner.section("quantization") or inner)
    return None


def _read(section: ModelConfig) -> Scheme | None:
    method = section.get(str, "quant_method", "")
    match method:
        case "fp8":
            return _float8(section)
        case "compressed-tensors":
            return _compressed(section)
        case "modelopt" | "modelopt_fp4":
            return _modelopt(section)
        case "" if section.get(int, "bits", None) is not None:
            return _mlx(section)
        case _:
            raise CheckpointUnsupported(
                f"{section.where}: {section.path.rstrip('.')} has quant_method {method!r}, which is not read: {_READ}"
            )


def _float8(section: ModelConfig) -> Scheme:
    section.require("fmt", None, "e4m3")
    return Scheme(name="fp8", block=_block(section, "weight_block_size"))


def _compressed(section: ModelConfig) -> Scheme | None:
    name = section.get(str, "format", "")
    if name in ("dense", "") and not section.values.get("config_groups"):
        return None
    formats = {name, *(group.get(str, "format", "") or name for group in _groups(section))}
    unknown = sorted(formats - _COMPRESSED)
    if unknown:
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}format is {unknown[0]!r}, which is not read: {_READ}"
        )
    sparsity = section.section("sparsity_config")
    if sparsity is not None and sparsity.values:
        sparsity.require("format", None, "dense")
    transform = section.section("transform_config")
    if transform is not None and transform.values.get("config_groups"):
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}transform_config rotates matrices, which is not run"
        )
    weights = [own for group in _groups(section) if (own := group.section("weights"))]
    blocks = {_block(each, "block_structure") for each in weights}
    blocks.discard(None)
    if len(blocks) > 1:
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}config_groups has block_structure of several sizes"
        )
    return Scheme(
        name=f"compressed-tensors {name}",
        block=next(iter(blocks), None),
        zero_points=bool(weights) and not any(each.get(bool, "symmetric", True) for each in weights),
    )


def _groups(section: ModelConfig) -> list[ModelConfig]:
    groups = section.section("config_groups")
    if groups is None:
        return []
    return [each for name in groups.values if (each := groups.section(name)) is not None]


def _modelopt(section: ModelConfig) -> Scheme:
    algorithm = section.get(str, "quant_algo", "")
    if algorithm not in _MODELOPT:
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}quant_algo is {algorithm!r}, which is not read: {_READ}"
        )
    return Scheme(name=f"modelopt {algorithm}", block=_block(section, "weight_block_size"))


def _block(section: ModelConfig, key: str) -> tuple[int, int] | None:
    value: Any = section.values.get(key)
    if value is None:
        return None
    sizes = cast("list[Any]", value) if isinstance(value, list) else []
    if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise CheckpointUnsupported(f"{section.where}: {section.path}{key} is {value!r}, and must be rows and columns")
    return sizes[0], sizes[1]


def _mlx(section: ModelConfig) -> Scheme:
    modules = {
        name: _rule(own)
        for name, value in section.values.items()
        if isinstance(value, Mapping) and (own := section.section(name))
    }
    rule = _rule(section)
    return Scheme(name=f"MLX affine {rule.bits} bit", affine=rule, modules=MappingProxyType(modules))


def _rule(section: ModelConfig) -> AffineRule:
    section.require("mode", None, "affine")
    bits, group = section.positive("bits"), section.positive("group_size", 64)
    if bits not in (2, 3, 4, 5, 6, 8) or group not in (16, 32, 64, 128):
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}bits is {bits} and group_size {group}, and 2 to 6 or 8 bits in groups of"
            " 16, 32, 64 or 128 are read"
        )
    return AffineRule(bits, group)
