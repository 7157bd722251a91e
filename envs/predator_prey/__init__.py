"""Worlds in which some agents hunt others."""
