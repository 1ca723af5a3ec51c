"""L-BFGS runs the same kernels at each step: lengths and shares are data, not constants."""

from tilework import Tensor
from tilework.engine.stats import COUNTERS
from tilework.nn.optim import LBFGS


def test_later_steps_of_lbfgs_compile_nothing() -> None:
    x = Tensor([-1.2, 1.0, 0.5], requires_grad=True)
    optimizer = LBFGS([x], lr=0.01, max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = ((x - 2.0) ** 4).sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(2)]
    compiled = COUNTERS.compiles
    losses.append(optimizer.step(closure).item())
    assert COUNTERS.compiles == compiled
    assert losses[0] > losses[1] > losses[2]
