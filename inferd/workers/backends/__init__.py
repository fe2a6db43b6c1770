"""The models: each back end turns a job into bytes, off the event loop."""
