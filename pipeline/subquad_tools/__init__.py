"""Commands that measure and compare models: `bench`, `diagnose` and `swap`.

They use the core as a package of anybody's would, and the core finds them by their entry points.
"""
