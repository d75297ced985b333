"""The checks, one file a theme. Each file has a `CHECKS` tuple."""
