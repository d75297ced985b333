"""Built-in mixers, backbones, tasks and recipes, found through entry points like anybody's."""
