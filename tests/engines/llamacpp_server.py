"""llama.cpp's server, run by the Python of its own environment: `PORT WEIGHTS CONTEXT`."""

from __future__ import annotations

import os
import signal
import sys

import xllamacpp

port, weights, context = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = weights, ["127.0.0.1"], int(port)
params.n_ctx, params.n_parallel, params.cache_ram_mib = int(context), 1, 256
params.verbosity, params.ui, params.use_jinja = 1, False, True
params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
os._exit(0)  # its threads do not end by themselves
