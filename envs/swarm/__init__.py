"""Worlds of many agents with a common task."""
