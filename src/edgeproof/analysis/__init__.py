"""Analysis of trained models: filter coefficients, spectra, diffusion matrices, and degrees of misclassified nodes."""

from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.comparison import ModelComparison, compare
from edgeproof.analysis.degrees import AttackedDegrees, attacked_degrees
from edgeproof.analysis.diffusion import diffusion, self_influence
from edgeproof.analysis.drawing import diffusion_figure, plot_diffusion
from edgeproof.analysis.spectrum import Spectrum, spectrum

__all__ = [
    "AttackedDegrees",
    "Coefficients",
    "ModelComparison",
    "Spectrum",
    "attacked_degrees",
    "coefficients",
    "compare",
    "diffusion",
    "diffusion_figure",
    "plot_diffusion",
    "self_influence",
    "spectrum",
]
