"""Colours of what is not an item, shared by pictures and pages."""

from __future__ import annotations

THEMES: dict[str, dict[str, str]] = {
    "dark": {
        "page": "#0b1120",
        "card": "#131c31",
        "border": "#22304d",
        "stage": "#0f1729",
        "arena": "#16213a",
        "grid": "#1f2c49",
        "wall": "#3d4d70",
        "text": "#e8edf7",
        "muted": "#93a1bd",
        "accent": "#5cb3ff",
        "flash": "#ffffff",
    },
    "light": {
        "page": "#eef1f7",
        "card": "#ffffff",
        "border": "#d9e0ec",
        "stage": "#e9edf5",
        "arena": "#fbfcfe",
        "grid": "#e6ebf4",
        "wall": "#9aa7bf",
        "text": "#172136",
        "muted": "#5d6b85",
        "accent": "#1c75d4",
        "flash": "#e6a100",
    },
}


def theme(name: str) -> dict[str, str]:
    """The colours of a theme by role, as ``#rrggbb``.

    Raises:
        ValueError: for an unknown theme.
    """
    if name not in THEMES:
        raise ValueError(f"theme={name!r} is not one of {', '.join(THEMES)}")
    return THEMES[name]
