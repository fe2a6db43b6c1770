"""The worker agent: a worker that operators reach over HTTP."""
