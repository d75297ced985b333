"""Built-in data sets, found through entry points like anybody's."""
