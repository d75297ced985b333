"""Named experiments and studies that ship with subquad: one YAML file each, its first line the
summary.
"""
