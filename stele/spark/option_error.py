"""The error for options of the data source."""


class OptionError(ValueError):
    """An option of the data source is missing, unknown or has an invalid value."""
