"""The daemon: settings, supervision, rounds, health, HTTP API."""
