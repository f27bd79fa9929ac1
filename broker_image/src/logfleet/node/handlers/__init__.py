"""One module per group of APIs.

Each exports HANDLERS: request class -> handler(rooms, request, context).
"""

from logfleet.node.dispatch import Handlers
from logfleet.node.handlers.rooms import Rooms


def all_handlers() -> Handlers[Rooms]:
    """Every handler of this version; what ApiVersions advertises follows from it."""
    from logfleet.node.handlers import (
        acls,
        api_versions,
        coordinator,
        delete_records,
        epochs,
        fetch,
        groups,
        list_offsets,
        log_dirs,
        metadata,
        producer_ids,
        producers,
        scram_credentials,
        transactions,
        write_txn_markers,
    )
    from logfleet.node.handlers.admin import routes as admin
    from logfleet.node.handlers.offsets import commits, deletions, fetches, txn_offsets
    from logfleet.node.handlers.producing import produce
    from logfleet.node.handlers.transaction_gate import gated

    modules = (
        produce,
        fetch,
        list_offsets,
        delete_records,
        log_dirs,
        epochs,
        metadata,
        api_versions,
        admin,
        acls,
        scram_credentials,
        producer_ids,
        producers,
        coordinator,
        groups,
        commits,
        fetches,
        deletions,
        transactions,
        write_txn_markers,
        txn_offsets,
    )
    return gated(
        {request: handler for module in modules for request, handler in module.HANDLERS.items()}
    )
