"""Shards: plain tars of labelled samples, as WebDataset has them, each with an index beside it.

FOLDER/train-00000.tar          KEY.jpg (or .png, .gif, .webp), then KEY.cls with a number
FOLDER/train-00000.tar.index    which samples there are and where, and the sums of all (`index`)
FOLDER/classes.txt              names of the labels, a line each; may be missing
"""
