"""Summary of a model's polynomial filter, small enough for a result file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from edgeproof.analysis import Coefficients, coefficients, compare

# Odd, so that the many eigenvalues at 1 fall into one bin.
BINS = 41


@dataclass(frozen=True)
class Filter:
    r"""Coefficients :math:`\gamma` of a model's diffusion and the spectrum of the test graph.

    Args:
        gamma: Coefficients, with fixed sign and absolute values that sum to 1.
        self_loops: Whether the diffusion uses the normalised :math:`A + I` (True) or :math:`A` (False).
        own_share: Weight of each node's own hidden state, see :func:`edgeproof.analysis.self_influence`. None if not measured.
        mean_frequency: Mean frequency of filtered white noise, see :class:`edgeproof.analysis.Spectrum`.
        density: Fraction of the graph's eigenvalues in each of :data:`BINS` equal bins of [0, 2].
    """

    gamma: tuple[float, ...]
    self_loops: bool
    own_share: float | None
    mean_frequency: float
    density: tuple[float, ...]

    @classmethod
    def of(cls, model: nn.Module, data: Data) -> Filter | None:
        """Return the filter of a model on a graph; None if the model has no non-zero polynomial filter.

        >>> from edgeproof import datasets, models
        >>> Filter.of(models.APPNP(21, 2, K=2, alpha=0.5), datasets.load("csbm")).gamma
        (0.5, 0.25, 0.25)
        """
        try:
            polynomial = coefficients(model)
        except (TypeError, ValueError):
            return None
        comparison = compare({"model": polynomial}, data)
        spectrum = comparison.spectra["model"]
        return cls(
            gamma=tuple(polynomial.gamma.tolist()),
            self_loops=polynomial.self_loops,
            own_share=comparison.self_influence["model"],
            mean_frequency=spectrum.mean_frequency,
            density=tuple(spectrum.histogram(BINS).tolist()),
        )

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Filter:
        """Return the filter of a result file.

        Args:
            values: Value of the entry ``"filter"`` that :func:`describe_filter` returns.

        Raises:
            ValueError: If an entry is missing or invalid.
        """
        try:
            gamma, density = ([float(number) for number in values[name]] for name in ("gamma", "density"))
            if not all(map(math.isfinite, [*gamma, *density])) or not any(gamma) or not any(density):
                raise ValueError("expected finite coefficients and densities that are not all zero")
            own_share = values.get("own_share")
            return cls(
                gamma=tuple(gamma),
                self_loops=bool(values["self_loops"]),
                own_share=None if own_share is None else float(own_share),
                mean_frequency=float(values["mean_frequency"]),
                density=tuple(density),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"invalid filter: {error!r}") from error

    def response(self) -> list[tuple[float, float]]:
        r"""Return pairs :math:`(\lambda, g(\lambda))` at the centres of the bins, scaled to :math:`\max |g| = 1`."""
        frequency = (torch.arange(BINS, dtype=torch.float64) + 0.5) * 2 / BINS
        response = Coefficients.of(list(self.gamma), self_loops=self.self_loops).response(frequency)
        return list(zip(frequency.tolist(), (response / response.abs().max()).tolist(), strict=True))


def describe_filter(model: nn.Module, data: Data) -> dict[str, Any]:
    """Return the entry ``filter`` of a result file, or an empty dictionary if the model has no polynomial filter."""
    found = Filter.of(model, data)
    return {} if found is None else {"filter": asdict(found)}
