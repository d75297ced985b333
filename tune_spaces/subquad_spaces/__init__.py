"""Search spaces: data, not code. Empty until `subquad tune` arrives."""
