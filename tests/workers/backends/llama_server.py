"""llama.cpp's own HTTP server with SmolLM2, as somebody else's program: in a process of its own.

    python llama_server.py MODEL_FILE API_KEY chat|embeddings

Prints its address, and ends with its parent's end of the pipe.
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = ["SmolLM2"]
    params.api_keys = [sys.argv[2]]
    params.n_parallel = 2
    params.n_ctx = 1024
    params.n_batch = params.n_ubatch = 128
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_slots = params.endpoint_metrics = True
    params.verbosity = -1
    params.ui = False
    if sys.argv[3] == "embeddings":
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        params.n_batch = params.n_ubatch = 512
    server = xllamacpp.Server(params)
    server.handle_metrics()  # not before its loop has begun may it be dropped
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
