"""Perplexity of a text: the cpu backend in floats and as it serves, and llama.cpp's server, on the same GGUF file.

    pip install xllamacpp
    python benchmarks/cpu_perplexity.py MODEL.gguf [--tokens 20000] [--llama]

The text is the beginning of Alice's Adventures in Wonderland (Lewis Carroll, 1865; in the public domain), read in windows
of 512 tokens. llama.cpp's server tells no log-probabilities of a prompt, so it is asked for one token behind each
prefix, which is forced by a bias that its reported log-probabilities leave out.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import subprocess
import sys
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.step import Segment
from tensorfold.observe import configure_logs
from tensorfold_backend_cpu import CpuBackend
from tensorfold_model_llama.family import LlamaFamily

HERE: Final = Path(__file__).parent
TEXT: Final = HERE / "texts" / "alice_in_wonderland.txt"
WINDOW: Final = 512

Ids = NDArray[np.int64]


def windows(path: Path, tokens: int) -> list[list[int]]:
    """The text's tokens, in whole windows."""
    tokenizer = open_checkpoint(path, [LlamaFamily()]).checkpoint.tokenizer()
    ids = tokenizer.encode(TEXT.read_text(), add_special_tokens=False, parse_special=False)
    count = min(len(ids), tokens) // WINDOW
    return [list(ids[number * WINDOW : (number + 1) * WINDOW]) for number in range(count)]


def ours(path: Path, weights: str, threads: int, parts: Sequence[Sequence[int]]) -> tuple[NDArray[np.float64], Ids]:
    """The loss of every token, in nats, and the likeliest token in each place."""
    opened = open_checkpoint(path, [LlamaFamily()])
    session = CpuBackend().open(BackendSettings(threads=threads, weights=weights))
    geometry = opened.family.geometry(opened.checkpoint.config)
    decoder: Any = load_decoder(opened.family, opened.checkpoint.config, opened.checkpoint, session.packer)
    plan = plan_memory(geometry, session, lanes=1, context=WINDOW, budget=1 << 30)
    runner: Runner[Any] = Runner(decoder, session, geometry, lanes=1, pages=plan.pages, identity="perplexity")
    losses: list[NDArray[np.float64]] = []
    likeliest: list[Ids] = []
    for part in parts:
        slot = runner.acquire()
        assert slot is not None
        output = runner.forward([Segment(slot, tuple(part), 0, want="all", kind="chunk")])
        logits = runner.logits(output, range(len(part) - 1)).astype(np.float64)
        runner.release(slot)
        top = logits.max(-1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
        losses.append(total - logits[np.arange(len(part) - 1), part[1:]])
        likeliest.append(logits.argmax(-1))
    session.close()
    return np.concatenate(losses), np.concatenate(likeliest)


def llama(path: Path, threads: int, parts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """llama.cpp's losses."""
    command = [sys.executable, str(HERE / "llamacpp_server.py"), str(path), str(threads), str(2 * WINDOW), "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = next(line.split()[1] for line in process.stdout if line.startswith("LISTENING"))
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc)
        losses = [_forced(connection, part[:place], part[place]) for part in parts for place in range(1, len(part))]
    finally:
        process.terminate()
    return np.asarray(losses)


def _forced(connection: http.client.HTTPConnection, prefix: Sequence[int], token: int) -> float:
    """The loss of one token behind a prefix."""
    body = {
        "prompt": list(prefix),
        "n_predict": 1,
        "n_probs": 1,
        "temperature": 0,
        "cache_prompt": True,
        "logit_bias": [[token, 1e6]],
        "samplers": ["temperature"],
    }
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    chosen = answer["completion_probabilities"][0]
    assert chosen["id"] == token
    return -float(chosen["logprob"])


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama", action="store_true", help="llama.cpp, too, at some milliseconds a token")
    given = parser.parse_args()
    configure_logs()
    parts = windows(given.model, given.tokens)
    exact, right = ours(given.model, "exact", given.threads, parts)
    served, got = ours(given.model, "auto", given.threads, parts)
    print(f"tokens              {len(exact)}")
    print(f"floats              {math.exp(exact.mean()):.4f}")
    print(f"as served           {math.exp(served.mean()):.4f}")
    print(f"same likeliest      {(got == right).mean():.4f}")
    if given.llama:
        theirs = llama(given.model, given.threads, parts)
        print(f"llama.cpp           {math.exp(theirs.mean()):.4f}")
        print(f"as served over it   {math.exp(served.mean() - theirs.mean()):.4f}")


if __name__ == "__main__":
    main()
