"""The command line: each verb a thin wrapper over public functions."""

from edgeproof.cli.app import main

__all__ = ["main"]
