"""Structure attacks: so far the pieces that their steps are made of."""

from edgeproof.attacks.blocks import Block, resample, sample_block
from edgeproof.attacks.projections import project_global

__all__ = ["Block", "project_global", "resample", "sample_block"]
