"""A model behind a server that speaks OpenAI's API."""
