"""A package, so that pytest names these modules `tests....`: `operator` is the standard library's."""
