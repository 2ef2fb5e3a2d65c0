"""How the property tests of this room run."""

from hypothesis import settings

# A busy machine is no failure: time limits belong to bench/.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
