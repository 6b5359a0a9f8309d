"""Randomized trials of the library: attacks, certificates, killed commands, damaged files, bad inputs. Run ``make fuzz``."""
