"""The one error that a user sees."""


class TestbedError(Exception):
    """What was attempted, why it failed, and what to do about it, in one sentence."""

    __test__ = False
