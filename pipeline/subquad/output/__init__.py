"""What commands show: text on a terminal, tables of other formats, progress of runs."""
