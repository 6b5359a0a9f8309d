"""Randomized trials of the library: attacks, certificates, damaged files and killed writers. Run ``make fuzz``."""
