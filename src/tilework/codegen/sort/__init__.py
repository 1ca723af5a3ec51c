"""Sorting of rows, written in the statements of the LINEAR stage, so that every renderer has it.

`keys` makes integers that compare as the elements do, `radix` and `rank` are the algorithms for
long and short rows, `lower` picks one and puts a loop over the rows around it.
"""
