"""What a model has learned: how far it listens, to which frequencies, between which nodes, and where attacks succeed."""

from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.comparison import Comparison, compare
from edgeproof.analysis.degrees import AttackedDegrees, attacked_degrees
from edgeproof.analysis.diffusion import diffusion, own_share
from edgeproof.analysis.drawing import diffusion_figure, plot_diffusion
from edgeproof.analysis.spectrum import Spectrum, spectrum

__all__ = [
    "AttackedDegrees",
    "Coefficients",
    "Comparison",
    "Spectrum",
    "attacked_degrees",
    "coefficients",
    "compare",
    "diffusion",
    "diffusion_figure",
    "own_share",
    "plot_diffusion",
    "spectrum",
]
