"""The split engine: learner processes on this machine, sampling servers (vLLM or SGLang) over HTTP."""
