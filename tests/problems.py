"""Small real problems for the tests of methods and of the runtime."""

from subbit.conformance.problems import MODULES as MODULES
from subbit.conformance.problems import Scaled as Scaled
from subbit.conformance.problems import SmallViT as SmallViT
from subbit.conformance.problems import constant_examples as constant_examples
from subbit.conformance.problems import conv_net as conv_net
from subbit.conformance.problems import digits_problem as digits_problem
from subbit.conformance.problems import mlp as mlp
from subbit.conformance.problems import settings as settings
from subbit.conformance.problems import small_vit as small_vit
