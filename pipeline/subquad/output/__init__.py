"""What commands show: text on a terminal, tables of other formats, progress of runs.

In: values of anybody, and the files of runs that train. Out: text without a sign that steers a
terminal, a page or a spreadsheet. Imports experiments and records. Knows of no command.
"""
