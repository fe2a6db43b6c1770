"""Where the node's tables are: a server the operator named, or the embedded one."""

from __future__ import annotations

from indexer.database import connect
from indexer.schema import chain_migrations, migrate
from indexer.threads import in_thread
from inferd.node.postgres import EmbeddedPostgres
from inferd.node.preflight import node_migrations
from inferd.node.settings import Settings


class Database:
    """The embedded server is started again whenever it is found down."""

    def __init__(self, settings: Settings) -> None:
        self._embedded: EmbeddedPostgres | None = None
        if settings.database_url is not None:
            self.url = settings.database_url.get_secret_value()
        else:
            self._embedded = EmbeddedPostgres(settings.data_dir / "postgres")
            self.url = self._embedded.url

    async def ensure_running(self) -> None:
        """Raises DatabaseUnreachable."""
        if self._embedded is not None:
            await in_thread(self._embedded.ensure_running)

    async def prepare(self) -> None:
        """Brings the tables up to date. Raises DatabaseUnreachable, DatabaseNewer."""
        await self.ensure_running()
        connection = await connect(self.url)
        try:
            await migrate(connection, "chain", chain_migrations())
            await migrate(connection, "node", node_migrations())
        finally:
            await connection.close()

    async def leave(self) -> None:
        """Stops the embedded server unless another daemon uses it."""
        if self._embedded is not None:
            await self._embedded.stop_if_unused()
