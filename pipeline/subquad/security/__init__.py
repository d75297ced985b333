"""Files and servers of anybody: what they may ask of this machine.

In: paths, texts and addresses. Out: their content, within limits, without following a link,
or one line that says why not. Imports errors. Knows of no run.
"""
