"""Settings of all tests, whichever folder of them is run."""

from hypothesis import settings

# Wall time on a busy machine says nothing about an example; pytest's timeout catches what hangs.
settings.register_profile("logfleet", deadline=None)
settings.load_profile("logfleet")
