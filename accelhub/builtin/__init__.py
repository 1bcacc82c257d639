"""Platforms that need no package of their own. Ordinary plugins, loaded like any other."""
