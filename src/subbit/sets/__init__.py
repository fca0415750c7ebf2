"""Which data sets there are, where they are on this machine and how their folders look. `subbit.data` reads them.

Nothing here needs torch, so that a list of the data sets is quick.
"""
