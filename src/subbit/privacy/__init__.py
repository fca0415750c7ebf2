"""Differential privacy of local training: what a client sends hardly depends on any one of its examples.

    sampling      Poisson batches, the ones that accountants assume
    per_sample    the gradient of every example by itself, clipped, summed
    budget        how much noise a budget asks for, and what budget some noise amounts to (Opacus)
    parameters    the keys of a method
    mechanism     the three together, as a step of local training
    refusals      runs and networks for which the guarantee would be wrong
    report        what the run's summary says about it

What is guaranteed, and what is not: docs/privacy.md.
"""
