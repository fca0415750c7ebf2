"""Models: flat parameter vectors, selection and reparametrisation of weights, backbones and heads."""

from subbit.models.classifier import Classifier
from subbit.models.flat import FlatModel, model_sha256
from subbit.models.load_model import ModelInfo, load_classifier, model_names
from subbit.models.reparametrisation import BernoulliMask, Identity, Reparametrisation, SignMask, ThresholdMask
from subbit.models.select import find_blocks, find_head, select_parameters
from subbit.models.template import Template

__all__ = [
    "BernoulliMask",
    "Classifier",
    "FlatModel",
    "Identity",
    "ModelInfo",
    "Reparametrisation",
    "SignMask",
    "Template",
    "ThresholdMask",
    "find_blocks",
    "find_head",
    "load_classifier",
    "model_names",
    "model_sha256",
    "select_parameters",
]
