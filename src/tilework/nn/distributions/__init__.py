"""Random numbers by their laws: draws, densities, entropies and divergences.

Names, arguments and shapes are those of `torch.distributions`.  Parameters that are plain numbers
are checked; tensors are not read for that.

Example:
    >>> from tilework import Tensor
    >>> from tilework.nn.distributions import Normal, kl_divergence
    >>> law = Normal(Tensor([0.0, 1.0]), 2.0)
    >>> law.sample((3,)).shape
    (3, 2)
    >>> kl_divergence(law, law).tolist()
    [0.0, 0.0]
"""

from __future__ import annotations

from tilework.nn.distributions.continuous import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from tilework.nn.distributions.counts import (
    Binomial,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from tilework.nn.distributions.discrete import Bernoulli, Categorical, Poisson
from tilework.nn.distributions.distribution import Distribution
from tilework.nn.distributions.divergence import kl_divergence
from tilework.nn.distributions.tails import (
    Chi2,
    FisherSnedecor,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    Pareto,
    StudentT,
    Weibull,
)
from tilework.nn.distributions.transformed import LogisticNormal, TransformedDistribution
from tilework.nn.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from tilework.nn.distributions.vectors import (
    Dirichlet,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
)
from tilework.tensor.wrong_calls import tell

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "CumulativeDistributionTransform", "Dirichlet", "Distribution",
    "ExpTransform", "Exponential", "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy",
    "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy", "Laplace",
    "LogNormal", "LogisticNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StickBreakingTransform",
    "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "Weibull",
    "identity_transform", "kl_divergence",
]  # fmt: skip

tell(__name__, __all__)
