"""What computing costs: one counter of floating-point operations and bytes for all of subquad."""

from subquad.cost.counter import Cost, Count, count_pass, counting, step_cost

__all__ = ["Cost", "Count", "count_pass", "counting", "step_cost"]
