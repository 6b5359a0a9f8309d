"""Entry point of ``python -m edgeproof``."""

from edgeproof.cli import main

if __name__ == "__main__":
    main()
