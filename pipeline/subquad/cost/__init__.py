"""What computing costs: one counter of floating-point operations and bytes for all of subquad."""

from subquad.cost.counter import Count, OperationCounter, count_pass
from subquad.cost.training import Cost, step_cost

__all__ = ["Cost", "Count", "OperationCounter", "count_pass", "step_cost"]
