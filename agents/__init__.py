"""Learners and policies for multi-agent environments."""
