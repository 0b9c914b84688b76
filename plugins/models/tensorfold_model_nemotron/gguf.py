"""How GGUF files of `nemotron_h` and `nemotron_h_moe` read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter. It tells a layer's kind by arrays of head counts and widths,
stores -exp(A_log), and permutes queries and keys for a rotation that these models do not have. The draft head's two
layers lie as one more block behind the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.contracts.gguf import GgufArchitecture, GgufFacts, GgufTensor
from tensorfold.errors import CheckpointUnsupported

__all__ = ["ARCHITECTURES"]

_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vocab_size": "{arch}.vocab_size",
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "num_attention_heads": "{arch}.attention.head_count",
        "head_dim": "{arch}.attention.key_length",
        "layer_norm_epsilon": "{arch}.attention.layer_norm_rms_epsilon",
        "conv_kernel": "{arch}.ssm.conv_kernel",
        "ssm_state_size": "{arch}.ssm.state_size",
        "n_groups": "{arch}.ssm.group_count",
        "mamba_num_heads": "{arch}.ssm.time_step_rank",
        "n_routed_experts": "{arch}.expert_count",
        "num_experts_per_tok": "{arch}.expert_used_count",
        "moe_intermediate_size": "{arch}.expert_feed_forward_length",
        "moe_shared_expert_intermediate_size": "{arch}.expert_shared_feed_forward_length",
        "n_shared_experts": "{arch}.expert_shared_count",
        "norm_topk_prob": "{arch}.expert_weights_norm",
        "routed_scaling_factor": "{arch}.expert_weights_scale",
        "n_group": "{arch}.expert_group_count",
        "moe_latent_size": "{arch}.moe_latent_size",
    }
)

_MIXERS: Final[Mapping[str, GgufTensor]] = MappingProxyType(
    {
        "attn_q.weight": GgufTensor("q_proj.weight", unpermute="num_attention_heads"),
        "attn_k.weight": GgufTensor("k_proj.weight", unpermute="num_key_value_heads"),
        "attn_v.weight": GgufTensor("v_proj.weight"),
        "attn_output.weight": GgufTensor("o_proj.weight"),
        "ssm_in.weight": GgufTensor("in_proj.weight"),
        "ssm_in.bias": GgufTensor("in_proj.bias"),
        "ssm_conv1d.weight": GgufTensor("conv1d.weight", conv=True),
        "ssm_conv1d.bias": GgufTensor("conv1d.bias"),
        "ssm_dt.bias": GgufTensor("dt_bias"),
        "ssm_a": GgufTensor("A_log", log=True),
        "ssm_d": GgufTensor("D"),
        "ssm_norm.weight": GgufTensor("norm.weight"),
        "ssm_out.weight": GgufTensor("out_proj.weight"),
        "ssm_out.bias": GgufTensor("out_proj.bias"),
        "ffn_up.weight": GgufTensor("up_proj.weight"),
        "ffn_up.bias": GgufTensor("up_proj.bias"),
        "ffn_down.weight": GgufTensor("down_proj.weight"),
        "ffn_down.bias": GgufTensor("down_proj.bias"),
        "ffn_gate_inp.weight": GgufTensor("gate.weight"),
        "exp_probs_b.bias": GgufTensor("gate.e_score_correction_bias"),
        "ffn_up_exps.weight": GgufTensor("experts.up_proj.weight"),
        "ffn_down_exps.weight": GgufTensor("experts.down_proj.weight"),
        "ffn_up_shexp.weight": GgufTensor("shared_experts.up_proj.weight"),
        "ffn_down_shexp.weight": GgufTensor("shared_experts.down_proj.weight"),
        "ffn_latent_down.weight": GgufTensor("fc1_latent_proj.weight"),
        "ffn_latent_up.weight": GgufTensor("fc2_latent_proj.weight"),
    }
)

_DRAFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nextn.eh_proj.weight": "mtp.layers.0.eh_proj.weight",
        "nextn.enorm.weight": "mtp.layers.0.enorm.weight",
        "nextn.hnorm.weight": "mtp.layers.0.hnorm.weight",
        "attn_norm.weight": "mtp.layers.0.norm.weight",
        "post_attention_norm.weight": "mtp.layers.1.norm.weight",
        "ffn_norm.weight": "mtp.layers.1.norm.weight",
        "nextn.shared_head_norm.weight": "mtp.layers.1.final_layernorm.weight",
    }
)


def _adapted(rules: GgufArchitecture, facts: GgufFacts) -> GgufArchitecture:
    """With each layer's kind, the sizes that the metadata has as products, and which modules have biases."""
    drafts = facts.get("{arch}.nextn_predict_layers") or 0
    if drafts not in (0, 1):
        raise CheckpointUnsupported(f"nextn_predict_layers is {drafts}, and only 0 and 1 are run")
    inner, heads = facts.get("{arch}.ssm.inner_size"), facts.get("{arch}.ssm.time_step_rank")
    kv_heads, widths = _numbers(facts, "attention.head_count_kv"), _numbers(facts, "feed_forward_length")
    if not (isinstance(inner, int) and isinstance(heads, int) and heads > 0 and len(kv_heads) == len(widths)):
        raise CheckpointUnsupported(
            f"a {rules.architecture} file must say ssm.inner_size and ssm.time_step_rank, and for every layer"
            " attention.head_count_kv and feed_forward_length"
        )
    sparse = facts.get("{arch}.expert_count") is not None
    layers = len(widths) - drafts
    kinds = [
        "attention" if kv_heads[layer] else ("moe" if sparse else "mlp") if widths[layer] else "mamba"
        for layer in range(layers)
    ]
    names = [name.split(".", 2)[-1] for name in facts.names() if name.startswith("blk.")]
    fixed: dict[str, Any] = {
        **rules.fixed,
        "layers_block_type": kinds,
        "num_key_value_heads": max(kv_heads),
        "mamba_head_dim": inner // heads,
        "use_bias": "ssm_in.bias" in names,
        "use_conv_bias": "ssm_conv1d.bias" in names,
        "mlp_bias": "ffn_up.bias" in names,
        "num_nextn_predict_layers": drafts,
    }
    if not sparse:
        fixed["intermediate_size"] = max(widths)
    if (eps := facts.get("{arch}.attention.layer_norm_epsilon")) is not None:
        # Under the other norm's name, by some versions of the converter; the right one, if it is there, counts more.
        fixed["layer_norm_epsilon"] = eps
    tensors = dict(rules.tensors)
    if drafts:
        behind = f"blk.{layers}"
        attends = ("attn_q", "attn_k", "attn_v", "attn_output")
        mixers = {
            f"{behind}.{stored}": replace(
                rule, name=f"mtp.layers.{0 if stored.startswith(attends) else 1}.mixer.{rule.name}"
            )
            for stored, rule in _MIXERS.items()
        }
        head = {f"{behind}.{stored}": GgufTensor(name) for stored, name in _DRAFT.items()}
        # The first rule that fits a name counts.
        tensors = {**mixers, **head, **tensors}
    return replace(rules, fixed=fixed, tensors=tensors)


def _numbers(facts: GgufFacts, key: str) -> list[int]:
    value: Any = facts.get(f"{{arch}}.{key}")
    return [int(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _architecture(name: str) -> GgufArchitecture:
    return GgufArchitecture(
        architecture=name,
        config=_CONFIG,
        tensors={
            "token_embd.weight": GgufTensor("backbone.embeddings.weight"),
            "output.weight": GgufTensor("lm_head.weight"),
            "output_norm.weight": GgufTensor("backbone.norm_f.weight"),
            "blk.{i}.attn_norm.weight": GgufTensor("backbone.layers.{i}.norm.weight"),
            **{
                f"blk.{{i}}.{stored}": replace(rule, name=f"backbone.layers.{{i}}.mixer.{rule.name}")
                for stored, rule in _MIXERS.items()
            },
        },
        fixed={"model_type": "nemotron_h"},
        adapt=_adapted,
    )


ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = (_architecture("nemotron_h"), _architecture("nemotron_h_moe"))
