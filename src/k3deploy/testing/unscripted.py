"""The error of a fake that was asked for something no test told it about."""


class Unscripted(AssertionError):
    """A test fails with this, whatever the code under test catches: it is no K3Error."""
