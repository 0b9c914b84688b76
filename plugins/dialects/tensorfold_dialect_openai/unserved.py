"""Fields that the API or its usual extensions have and this server does not serve, with the values that pass.

Null always passes. A value that passes means the same as leaving the field out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensorfold.ir import JSON

__all__ = ["CHAT_FIELDS", "COMPLETION_FIELDS", "SHARED_FIELDS"]

Fields: TypeAlias = Mapping[str, tuple[JSON, ...]]

SHARED_FIELDS: Fields = {
    # OpenAI
    "service_tier": ("auto", "default"),
    "prediction": (),
    "moderation": (),
    "modalities": (["text"],),
    "audio": (),
    # structured output, as TabbyAPI spells it
    "json_schema": (),
    "regex_pattern": (),
    "grammar_string": (),
    # the same in the words of llama.cpp, SGLang and earlier vLLMs
    "grammar": ("",),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "guided_whitespace_pattern": (),
    # vLLM
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "early_stopping": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "logits_processors": ([],),
    "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,),
    "cache_salt": ("",),
    "mm_processor_kwargs": ({},),
    "kv_transfer_params": (),
    "vllm_xargs": ({},),
    "timings_per_token": (False,),
    # SGLang
    "stop_regex": ([], ""),
    "no_stop_trim": (False,),
    "lora_path": (),
    "custom_logit_processor": (),
    "return_hidden_states": (False,),
    # other names of what is served under OpenAI's or vLLM's, and llama.cpp's limits
    "n_predict": (-1,),
    "max_length": (),
    "min_length": (0,),
    "stop_sequence": ([], ""),
    "rep_pen": (1,),
    "ban_eos_token": (False,),
    "n_probs": (0,),
    "t_max_predict_ms": (-1, 0),
    "lora": ([],),
    # samplers of llama.cpp and TabbyAPI
    "banned_strings": ([], ""),
    "banned_tokens": ([], ""),
    "custom_token_bans": ([], ""),
    "allowed_tokens": ([],),
    "token_healing": (False,),
    "temperature_last": (False,),
    "top_a": (0,),
    "tfs": (1,),
    "tfs_z": (1,),
    "typical": (1,),
    "typical_p": (1,),
    "skew": (0,),
    "smoothing_factor": (0,),
    "max_temp": (1,),
    "min_temp": (1,),
    "dynatemp_range": (0,),
    "mirostat_mode": (0,),
    "mirostat": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_low": (1,),
    "dynatemp_high": (1,),
    "top_n_sigma": (-1, 0),
    "min_keep": (0,),
    "samplers": (),
    "penalty_range": (-1,),
    "repetition_range": (-1,),
    "repetition_penalty_range": (-1, 0),
    "rep_pen_range": (-1, 0),
    "repetition_decay": (0,),
    "repeat_penalty": (1,),
    "repeat_last_n": (-1,),
    "adaptive_target": (1,),
    "cfg_scale": (1,),
    "guidance_scale": (1,),
    "negative_prompt": ("",),
}
"""Of every endpoint that replies."""

CHAT_FIELDS: Fields = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "reasoning": (),
    "include_reasoning": (True,),
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "reasoning_format": ("auto", "deepseek"),
    "chat_template": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "documents": ([],),
    "echo": (False,),
    "response_prefix": ("",),
    "add_special_tokens": (False,),
    **SHARED_FIELDS,
}
"""Of `/v1/chat/completions`."""

COMPLETION_FIELDS: Fields = {
    "suffix": ("",),
    "prompt_embeds": (),
    "add_bos_token": (False,),
    **SHARED_FIELDS,
}
"""Of `/v1/completions`."""
