"""Command line; one module per command, which imports torch only when it runs."""

from edgeproof.cli.app import main

__all__ = ["main"]
