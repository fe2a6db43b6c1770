"""What a process does: all of a node's work, or some roles of one that is split over processes."""

from __future__ import annotations

from enum import StrEnum

from inferd.node.settings import BadSettings, Settings


class Role(StrEnum):
    """A part of the node's work that can be a process of its own."""

    INDEX = "index"
    """Copies the chain into the tables. One process at a time."""
    SCHEDULE = "schedule"
    """Decides and leases, fetches inputs, keeps house in the tables. One process at a time."""
    DISPATCH = "dispatch"
    """Has workers compute what is leased. Any number of processes at a time."""
    SETTLE = "settle"
    """Posts, refunds, delivers; the one role with the posters' keys. One process at a time for each
    key; those with different keys take turns, step by step."""
    API = "api"
    """Answers for requests and results over HTTP. Any number of processes, also beside a whole
    node; health, metrics and status are served by every process."""


Roles = frozenset[Role]

ALL: Roles = frozenset(Role)
WORK: Roles = ALL - {Role.API}
_EXCLUSIVE = (Role.INDEX, Role.SCHEDULE)


def is_whole(roles: Roles) -> bool:
    """Whether a process with these does all of a node's work."""
    return roles >= WORK


def exclusive(roles: Roles) -> tuple[Role, ...]:
    """Those that one process at a time has whatever its keys are, in the order in which their locks
    are taken."""
    return tuple(role for role in _EXCLUSIVE if role in roles)


def computes(roles: Roles) -> bool:
    """Whether workers without an agent can be in the process: it gives them work and has them sign
    for posts."""
    return roles >= {Role.DISPATCH, Role.SETTLE}


def roles_of(text: str) -> Roles:
    """Names, divided by commas. Raises BadSettings."""
    known = ", ".join(Role)
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = sorted(set(names) - {str(role) for role in Role})
    if wrong or not names:
        raise BadSettings(
            f"there is no role {', '.join(wrong)}" if wrong else "`--roles` names no role",
            help_text=f"the roles are {known}; without `--roles` a process has all of them",
        )
    return frozenset(map(Role, names))


def require_usable(settings: Settings, roles: Roles) -> None:
    """Raises BadSettings where these settings cannot be those of a process with these roles."""
    if is_whole(roles):
        return
    if settings.database_url is None:
        raise BadSettings(
            "processes that share a node's roles share a database, and `database_url` names none",
            help_text="name a PostgreSQL server that all of them reach",
        )
    if computes(roles):
        return
    divided = sorted(roles & {Role.DISPATCH, Role.SETTLE})
    embedded = [worker.name for worker in settings.workers if not worker.endpoint]
    if divided and embedded:
        raise BadSettings(
            f"worker {embedded[0]} computes inside a process that dispatches and settles, and this"
            f" one has only the role {divided[0]}",
            help_text="run it as an agent, by `inferd worker`, and give its entry an `endpoint`;"
            " or name dispatch and settle together in `--roles`",
        )
    if Role.DISPATCH in roles and settings.pool.operator is None:
        raise BadSettings(
            "a process that dispatches and does not settle has no poster's key to ask workers with",
            help_text="name the key that workers know the operator by in `pool.operator`",
        )
