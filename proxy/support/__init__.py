"""Small tools that know nothing of tools, models or requests."""
