"""What one busy neighbour does to the speed of a single stream: tensorfold's server and llama.cpp's, in turns.

    pip install xllamacpp gguf
    python benchmarks/cpu_neighbour.py MODEL.gguf [--json]

The neighbour is a process that does nothing but count. A server has one thread for each core given, so one of them shares
its core: two thirds to a half of the speed is what there is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cpu_vs_llamacpp import SERVERS, decode, prompt, start

COUNTING = "while True: pass"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2, help="of each server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figure = decode(32)
    servers = [start(name, given.model, given) for name in (SERVERS[0], SERVERS[-1])]
    samples: dict[str, dict[str, list[float]]] = {each.name: {"alone": [], "beside": []} for each in servers}
    try:
        for each in servers:
            each.complete(prompt(64), 8)
        for _ in range(given.rounds):
            for each in servers:
                samples[each.name]["alone"].append(figure(each))
                time.sleep(0.3)
                neighbour = subprocess.Popen([sys.executable, "-c", COUNTING])
                try:
                    samples[each.name]["beside"].append(figure(each))
                finally:
                    neighbour.kill()
                    neighbour.wait()
                time.sleep(0.3)
    finally:
        for each in servers:
            each.close()
    medians = {
        name: {case: statistics.median(values) for case, values in cases.items()} for name, cases in samples.items()
    }
    if given.json:
        print(json.dumps(medians, indent=2))
        return
    print("| tokens/s of one stream | alone | beside a busy process | of it |\n|---|---|---|---|")
    for name, cases in medians.items():
        share = cases["beside"] / cases["alone"]
        print(f"| {name} | {cases['alone']:.0f} | {cases['beside']:.0f} | {share:.0%} |")


if __name__ == "__main__":
    main()
