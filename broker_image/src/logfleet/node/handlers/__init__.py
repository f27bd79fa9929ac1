"""One module per group of APIs; each exports HANDLERS: request class -> handler(broker, request, context)."""

from typing import Any

from logfleet.node.dispatch import Handlers


def all_handlers() -> Handlers[Any]:
    """Every handler that this version has; what ApiVersions advertises follows from it."""
    from logfleet.node.handlers import (
        admin,
        api_versions,
        epochs,
        fetch,
        list_offsets,
        metadata,
        produce,
        producer_ids,
    )

    modules = (admin, api_versions, epochs, fetch, list_offsets, metadata, produce, producer_ids)
    return {request: handler for module in modules for request, handler in module.HANDLERS.items()}
