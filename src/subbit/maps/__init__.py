"""Maps: which vector a method trains, and how it determines the network's weights. Importing registers ours."""

from subbit.maps import masks as masks
from subbit.maps import projection as projection
from subbit.maps import subspace as subspace
from subbit.maps import weights as weights
from subbit.maps.bound import BoundMap as BoundMap
from subbit.maps.bound import MapPiece as MapPiece
from subbit.maps.weights import MapChoice as MapChoice
