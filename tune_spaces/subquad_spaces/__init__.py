"""Search spaces that ship with subquad: one YAML file each, its first line the summary. Data,
not code.
"""
