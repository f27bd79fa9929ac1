"""A package, so that pytest names these modules `tests....`: `operator` is a standard module."""
