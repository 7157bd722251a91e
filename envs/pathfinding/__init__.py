"""Agents that must reach their goals without running into each other, and the maps they do it on."""
