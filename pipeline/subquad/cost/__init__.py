"""What computing costs: one counter of floating-point operations and bytes for all of subquad.

In: a module and a batch. Out: counts, by forward and backward. Imports the contract of plugins.
Knows of no experiment, so results, dry runs, budgets and the certificate count alike.
"""

from subquad.cost.counter import Cost, Count, count_pass, counting, step_cost

__all__ = ["Cost", "Count", "count_pass", "counting", "step_cost"]
