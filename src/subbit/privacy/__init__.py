"""Differential privacy of local training: an upload hardly depends on any single example of the client.

    sampling      Poisson batches, as assumed by the accountants
    per_sample    clipped per-example gradients and their sum
    budget        the noise needed for a budget, and the budget spent with some noise (Opacus)
    privacy       the configuration keys
    mechanism     all of them combined, as a step of local training
    refusals      rejects networks for which the guarantee would be wrong
    report        the section of the run's summary

docs/privacy.md describes what is guaranteed and what is not.
"""
