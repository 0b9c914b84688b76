"""What GGUF files of Gemma 4 and of its drafters say in the same words, as the config says it.

llama.cpp's converter writes arrays for every layer where the config has one key for each type of layer; what part of a
full layer's head is rotated, `rope_freqs` tells, by which a pair is divided (1e30: it stands still).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.contracts.gguf import GgufFacts
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.keys import FULL, SLIDING, LayerType

__all__ = ["CONFIG", "LAYER", "ROPE_FREQUENCIES", "LayerFacts"]

ROPE_FREQUENCIES: Final = "rope_freqs.weight"
CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vocab_size": "{arch}.vocab_size",
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "num_hidden_layers": "{arch}.block_count",
        "num_attention_heads": "{arch}.attention.head_count",
        "head_dim": "{arch}.attention.key_length_swa",
        "global_head_dim": "{arch}.attention.key_length",
        "rms_norm_eps": "{arch}.attention.layer_norm_rms_epsilon",
        "sliding_window": "{arch}.attention.sliding_window",
        "num_kv_shared_layers": "{arch}.attention.shared_kv_layers",
        "hidden_size_per_layer_input": "{arch}.embedding_length_per_layer_input",
        "final_logit_softcapping": "{arch}.final_logit_softcapping",
        "num_experts": "{arch}.expert_count",
        "top_k_experts": "{arch}.expert_used_count",
        "moe_intermediate_size": "{arch}.expert_feed_forward_length",
    }
)
"""Config keys of the text model to metadata keys."""
LAYER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "attn_norm.weight": "input_layernorm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
        "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
        "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
        "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
        "ffn_gate_inp.weight": "router.proj.weight",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "ffn_gate_up_exps.weight": "experts.gate_up_proj",
        "ffn_down_exps.weight": "experts.down_proj",
        "inp_gate.weight": "per_layer_input_gate.weight",
        "proj.weight": "per_layer_projection.weight",
        "post_norm.weight": "post_per_layer_input_norm.weight",
        "layer_output_scale.weight": "layer_scalar",
    }
)
"""Names of a layer's tensors to those of its parameters."""


class LayerFacts:
    """What a file's metadata and `rope_freqs` say of its layers."""

    def __init__(self, facts: GgufFacts, architecture: str) -> None:
        """
        Args:
            architecture: the file's, for messages.

        Raises:
            CheckpointUnsupported: it does not say which layers slide.
        """
        self._facts = facts
        self._file = f"a {architecture} file"
        slides = facts.get("{arch}.attention.sliding_window_pattern")
        if not isinstance(slides, list) or not slides:
            raise CheckpointUnsupported(
                f"{self._file} must say of every layer whether it slides (attention.sliding_window_pattern)"
            )
        self.types: list[LayerType] = [SLIDING if each else FULL for each in cast("list[Any]", slides)]

    def each(self, key: str) -> list[int]:
        """One number for every layer, which the file says once or for each."""
        layers = len(self.types)
        value: Any = self._facts.get(f"{{arch}}.{key}")
        values = [int(each) for each in cast("list[Any]", value)] if isinstance(value, list) else [value] * layers
        if len(values) != layers or not all(isinstance(each, int) for each in values):
            raise CheckpointUnsupported(
                f"{self._file} must say {key}, one number for all of its {layers} layers or for each"
            )
        return values

    def heads(self) -> dict[str, int]:
        """Key heads of each type of layer."""
        counts = self.each("attention.head_count_kv")
        by_type = {
            type: {count for count, own in zip(counts, self.types, strict=True) if own == type}
            for type in (SLIDING, FULL)
        }
        if any(len(each) > 1 for each in by_type.values()):
            raise CheckpointUnsupported(
                f"{self._file} has attention.head_count_kv {counts}, and must have one number for a type of layers"
            )
        sliding, full = (next(iter(by_type[type]), counts[0]) for type in (SLIDING, FULL))
        return {"num_key_value_heads": sliding, "num_global_key_value_heads": full}

    def rope(self) -> dict[str, Any]:
        """The rotation of each type of layer."""
        full: dict[str, Any] = {"rope_type": "proportional", "partial_rotary_factor": 1.0}
        if ROPE_FREQUENCIES in frozenset(self._facts.names()):
            divisors = self._facts.values(ROPE_FREQUENCIES)
            if not divisors.all():
                # As in a file of which only the beginning is there.
                raise self._facts.damaged(ROPE_FREQUENCIES, "holds 0, by which no frequency is divided")
            turning = int((divisors < 1e20).sum())
            if (divisors[:turning] != 1).any() or (divisors[turning:] < 1e20).any():
                raise CheckpointUnsupported(
                    f"{self._file}'s {ROPE_FREQUENCIES} divides frequencies by others than 1 and infinity"
                )
            full["partial_rotary_factor"] = turning / len(divisors)
        sliding: dict[str, Any] = {"rope_type": "default"}
        for rule, key in ((full, "rope.freq_base"), (sliding, "rope.freq_base_swa")):
            base = self._facts.get(f"{{arch}}.{key}")
            if base is None:
                raise CheckpointUnsupported(f"{self._file} must say {key}")
            rule["rope_theta"] = base
        return {SLIDING: sliding, FULL: full}
