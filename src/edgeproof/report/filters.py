"""A model's filter in the few numbers that a result file keeps of it."""

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
    r"""The coefficients :math:`\gamma` of a model's diffusion, and the frequencies of the graph that it was tested on.

    Args:
        gamma: sign-fixed, sizes sum to 1.
        self_loops: whether of the normalised :math:`A + I` or of :math:`A`.
        own_share: how much nodes hear from themselves, see :func:`edgeproof.analysis.self_influence`; none if not measured.
        mean_frequency: of white noise that went through, see :class:`edgeproof.analysis.Spectrum`.
        density: share of the graph's eigenvalues in equal bins of [0, 2].
    """

    gamma: tuple[float, ...]
    self_loops: bool
    own_share: float | None
    mean_frequency: float
    density: tuple[float, ...]

    @classmethod
    def of(cls, model: nn.Module, data: Data) -> Filter | None:
        """Of a model with a polynomial filter that lets something pass; none for any other.

        >>> from edgeproof import datasets, models
        >>> Filter.of(models.APPNP(21, 2, K=2, alpha=0.5), datasets.load("csbm")).gamma
        (0.5, 0.25, 0.25)
        """
        try:
            found = coefficients(model)
        except (TypeError, ValueError):
            return None
        views = compare({"model": found}, data)
        spectrum = views.spectra["model"]
        return cls(
            gamma=tuple(found.gamma.tolist()),
            self_loops=found.self_loops,
            own_share=views.self_influence["model"],
            mean_frequency=spectrum.mean_frequency,
            density=tuple(spectrum.histogram(BINS).tolist()),
        )

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Filter:
        """From a result file; raises ``ValueError`` for anything that :func:`describe_filter` would not have written."""
        try:
            gamma, density = ([float(one) for one in values[name]] for name in ("gamma", "density"))
            if not all(map(math.isfinite, [*gamma, *density])) or not any(gamma) or not any(density):
                raise ValueError("expected coefficients and densities that are finite and not all zero")
            own_share = values.get("own_share")
            return cls(
                gamma=tuple(gamma),
                self_loops=bool(values["self_loops"]),
                own_share=None if own_share is None else float(own_share),
                mean_frequency=float(values["mean_frequency"]),
                density=tuple(density),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its filter is damaged: {error!r}") from error

    def response(self) -> list[tuple[float, float]]:
        r"""Frequencies, the middles of the bins, and :math:`g(\lambda)` there, its largest size 1."""
        frequency = (torch.arange(BINS, dtype=torch.float64) + 0.5) * 2 / BINS
        response = Coefficients.of(list(self.gamma), self_loops=self.self_loops).response(frequency)
        return list(zip(frequency.tolist(), (response / response.abs().max()).tolist(), strict=True))


def describe_filter(model: nn.Module, data: Data) -> dict[str, Any]:
    """What a result file says about a model's filter: an entry ``filter``, or nothing where it has none."""
    found = Filter.of(model, data)
    return {} if found is None else {"filter": asdict(found)}
