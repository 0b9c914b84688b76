"""llama.cpp's server from the wheel `xllamacpp`: MODEL.gguf, threads, positions in all, and streams at once."""

from __future__ import annotations

import sys
import threading

import xllamacpp


def main() -> None:
    """Serve until the process is ended."""
    path, threads, context, parallel = sys.argv[1], *(int(each) for each in sys.argv[2:5])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # All streams share the positions, as tensorfold's pages are shared.
    params.n_ctx, params.n_parallel, params.kv_unified = context, parallel, True
    params.n_gpu_layers, params.port = 0, 0
    server = xllamacpp.Server(params)
    print("LISTENING", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
